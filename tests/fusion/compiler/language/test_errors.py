"""Wrong uses: a CallbackError that names the file, the line and its text, and says what to write instead."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.special

import mathfuse as mf
from mathfuse.runtime.errors import CallbackError, MathFuseError

from .harness import define, expression, run

X = np.ones((2, 3), np.float32)
Z = X.astype(np.complex64)


@dataclass(frozen=True)
class Settings:
    sigma: float = 2.0

    def scaled(self, x):
        return x * self.sigma


SETTINGS = Settings()
METHOD = SETTINGS.scaled
NUMBERS = [1.0, 2.0]
LOOKUP = {"a": 1.0}
COUNTER = 0
DOUBLED = mf.scale(factor=2.0)
MODE = "Wrap"
NOTHING = None
HALVED = np.frompyfunc(lambda x: x / 2, 1, 1)
PARTIAL = functools.partial(math.pow, 2)
CONSTANT = mf.constant(np.arange(3.0))


# Each function's wrong line ends in a comment with a part of the message.


def prints(value):
    print(value)  # call `callback.function`
    return value


def recurses(value):
    return recurses(value - 1) if value > 0 else value  # recursion cannot run inside a kernel; write a loop


def recurses_through_another(value):
    return other_half(value)


def other_half(value):
    return recurses_through_another(value) if value > 1 else value  # calls itself: recursion


def recurses_in_an_inner_function(value):
    def inner(x):
        return inner(x - 1)

    return inner(value)


def raises(value):
    if value < 0:
        raise ValueError(f"negative: {value}")  # a callback cannot raise
    return value


def makes_a_list(value):
    items = [value, 2]  # write a tuple
    return items[0]


def makes_a_dict(value):
    table = {"a": value}  # write plain variables
    return table["a"]


def makes_a_set(value):
    return len({value, 2})  # write a tuple


def list_comprehension(value):
    return sum([value * k for k in range(3)])  # memory at run time; write a


def generator_expression(value):
    return sum(value * k for k in range(3))  # generator expressions need memory at run time; write a loop


def allocates(value):
    return np.zeros(3)[0] + value  # memory cannot be allocated inside a kernel; pass an array as an operand


def converts_to_array(value):
    return np.asarray(value)  # memory cannot be allocated inside a kernel


def returns_none(value):
    return None


def returns_nothing(value):
    value + 1


def returns_none_on_a_path(value):  # noqa: RET503
    if value > 0:
        return value


def returns_a_tuple(value, index):
    return value, index[0]


def returns_text(value):
    return "text"


def returns_a_function(value):
    return math.sin


def returns_different_kinds(value):
    return value if value > 0 else (value, 1)  # a float32 value and a tuple of 2


def calls_scipy(value):
    return scipy.special.erf(value)  # scipy.special.erf cannot run inside a callback; write math.erf. Callbacks may


def calls_scipy_without_a_twin(value):
    return scipy.special.j0(value)  # scipy.special.j0 cannot run inside a callback. Callbacks may use math


def calls_a_ufunc_of_no_module(value):
    return HALVED(value)  # <lambda> (vectorized) cannot run inside a callback


def unknown_numpy_function(value):
    return np.expp(value)  # module numpy has no 'expp'; near it there is exp


def numpy_function_of_arrays(value):
    return np.fft.fft(value)  # numpy.fft.fft cannot run inside a callback


def similar_numpy_function(value):
    return np.nextafter(value, 1)  # numpy.nextafter cannot run inside a callback


def reduction(value):
    return np.sum(value)  # reductions need the whole array; a callback sees one element at a time


def text_operation(value):
    return value + "1"  # the text '1' is not a number


def formatted_text(value):
    name = f"{value}"  # text cannot be made inside a kernel
    return value if name else 0


def text_method(value):
    return value if MODE.lower() == "wrap" else 0  # the text 'Wrap' has no attributes inside a callback


def tries(value):
    try:  # `try` has no meaning inside a kernel
        return 1 / value
    except ZeroDivisionError:
        return 0


def tries_finally(value):
    try:
        value += 1
    finally:
        value += 2
    return value


def with_statement(value):
    with contextlib.nullcontext():  # `with` cannot run inside a kernel
        return value


def helper_that_yields(value):
    yield value  # a generator cannot run inside a kernel


def uses_a_generator(value):
    return next(helper_that_yields(value))


def assigns_a_global(value):
    global COUNTER
    COUNTER = value  # a callback cannot assign to a global
    return value


def assigns_a_nonlocal(value):
    count = 0

    def bump(x):
        nonlocal count
        count = 1  # an inner function cannot assign to 'count' of the function around it; return the value
        return x

    return bump(value) + count


def imports(value):
    import math as m  # a callback cannot import; import at the top of the file

    return m.sin(value)


def makes_a_class(value):
    class Local:  # a class cannot be made inside a kernel
        pass

    return value


def unpacks_a_rest(value, index):
    first, *rest = index  # write slices
    return value + first + len(rest)


def attribute_of_an_object(value):
    return value * SETTINGS.sigma  # take what you need outside of it: sigma = ….sigma


def attribute_of_a_class(value):
    return value * Settings.sigma  # the class Settings has no attributes inside a callback


def bound_method(value):
    return METHOD(value)  # scaled is a bound method; write a plain function


def partial_function(value):
    return PARTIAL(value)  # an object of type functools.partial cannot run inside a callback


def unknown_attribute(value):
    return value.magnitude  # a float32 value has no 'magnitude' inside a callback; there are .real, .imag


def array_method(value):
    return value.astype(np.float64)  # numpy.float32(x) and its kind convert


def unknown_module_attribute(value):
    return math.cubicroot(value)  # module math has no 'cubicroot'


def list_from_a_global(value):
    return value * NUMBERS[0]  # an object of type list cannot be indexed; operands (arrays) and tuples can


def dict_from_a_global(value):
    return value * LOOKUP["a"]  # an object of type dict cannot be indexed


def wrong_arity(value):
    return helper(value)  # helper(): missing a required argument: 'y'


def helper(x, y):
    return x + y


def too_many_arguments(value):
    return helper(value, 1, 2)  # helper(): too many positional arguments


def unknown_keyword(value):
    return helper(value, z=1)  # helper(): missing a required argument: 'y'


def wrong_arity_of_a_function(value):
    return math.exp(value, 2)  # math.exp() takes 1 argument inside a callback, not 2


def wrong_arity_of_a_ufunc(value):
    return np.add(value)  # numpy.add() takes 2 arguments inside a callback, not 1


def keyword_of_a_ufunc(value):
    return np.exp(value, where=value > 0)  # numpy.exp() takes 1 argument inside a callback, not 1 and where=


def wrong_arity_of_a_builtin(value):
    return round(value, 1, 2)  # round() inside a callback: too many positional arguments


def key_of_max(value):
    return max(value, 1, key=abs)  # got an unexpected keyword argument 'key'


def min_of_one(value):
    return min(value)  # take two numbers or more


def index_with_a_float(value, w):
    return w[value, 0]  # an index must be an integer, not a float32 value; int(x) makes one


def index_with_a_slice(value, w):
    return w[0, :]  # an index must be an integer, not a slice


def index_with_an_ellipsis(value, w):
    return w[..., 0]  # an index must be an integer, not Ellipsis


def index_with_none(value, w):
    return w[None, 0]  # an index must be an integer, not None


def index_with_a_boolean(value, w):
    return w[value > 0, 0]  # an index must be an integer, not a bool value


def too_few_indices(value, index, w):
    return w[index[0]]  # operand 'w' has 2 dimensions but is indexed with 1; one element is w[i, j]


def too_many_indices(value, index, w):
    return w[index[0], 0, 0]  # has 2 dimensions but is indexed with 3


def calls_an_operand(value, w):
    return w(0, 1)  # operand 'w' cannot be called


def loops_over_an_operand(value, w):
    total = value
    for row in w:  # not over operand 'w'; for an operand: range(array.shape[0])
        total += row
    return total


def attribute_of_an_operand(value, w):
    return w.T[0, 0]  # operand 'w' has no 'T' inside a callback; there are [index], .shape, .ndim and .size


def matrix_product(value, w):
    return value @ w  # the operator @ works on arrays; a callback sees one element at a time


def assigns_to_a_tuple(value, index):
    index[0] = 1  # an element of a tuple of 2 cannot be assigned to
    return value


def assigns_to_a_constant(value, index):
    CONSTANT[index[1]] = value
    return value


def assigns_to_source(value, index, source):
    source[index] = value  # `source` cannot be assigned to
    return value


def assigns_an_attribute(value):
    SETTINGS.sigma = value  # attributes cannot be assigned inside a kernel
    return value


def undefined_on_a_path(value):
    if value > 0:
        scale = 2
    return value * scale  # 'scale' may be used before it is assigned


def undefined_name(value):
    return value * undefined_factor  # noqa: F821


def unpacks_too_few(value, index):
    a, b, c = index  # cannot unpack a tuple of 2 into 3 names
    return a + b + c + value


def unpacks_a_number(value):
    a, b = value  # cannot unpack a float32 value into 2 names
    return a + b


def checks_a_type(value):
    return value if isinstance(value, float) else 0  # isinstance() is not needed


def passes_keywords(value):
    options = {"y": 1}
    return helper(value, **options)  # **keywords cannot be passed on inside a callback; write the arguments out


def calls_a_number(value):
    return value(2)  # a float32 value cannot be called


def calls_none(value):
    return NOTHING(value)  # None cannot be called


def index_out_of_range(value, index):
    return value + index[2]  # tuple index 2 is out of range: the tuple has 2 elements


def index_of_a_tuple_by_a_float(value, index):
    return value + index[value]  # a tuple index must be an integer, not a float32 value


def slice_by_a_run_time_bound(value, index):
    return sum(index[index[0] :])  # the bounds of a tuple's slice must be constants


def loop_over_a_number(value):
    for k in value:  # a loop runs over a tuple (`axes`, `shape`) or range(n), not over a float32 value
        value += k
    return value


def range_of_a_float(value):
    for _ in range(value):  # range() takes integers, not a float32 value
        value += 1
    return value


def range_with_a_run_time_step(value, index):
    for _ in range(0, 10, index[0]):  # the step of range() must be a constant other than 0
        value += 1
    return value


def enumerates_a_range(value, shape):
    for k, _ in enumerate(range(shape[0])):  # write `for i in range(…)` and index
        value += k
    return value


def zips_numbers(value, index):
    for i, k in zip(index, 3):  # zip() takes tuples
        value += i * k
    return value


def endless(value):
    while True:
        value += 1


def grows_a_tuple(value, shape):
    items = ()
    for k in range(shape[0]):
        items = (*items, k)
    return value + len(items)


def changes_what_a_lambda_captured(value):
    scale = 2
    f = lambda x: x * scale  # noqa: E731
    scale = 3  # 'scale' changes after the inner function <lambda> has captured it
    return f(value) + scale


def calls_a_callback_with_a_value(value):
    return DOUBLED(value)  # scale(factor=…) has a value bound, which a call inside a callback would lose; call scale


def orders_tuples(value, index):
    return value if index < (1, 1) else 0  # < does not work on a tuple


def compares_identity(value, index):
    one = 1
    return value if index[0] is one else 0


def shifts_a_float(value):
    return value << 1  # << takes integers, not a float32 value and the constant 1


def inverts_a_float(value):
    return ~value  # ~ takes integers and booleans, not a float32 value


def divides_by_the_constant_zero(value):
    return value + 1 / 0  # division by the constant zero


def constant_out_of_domain(value):
    return value + math.sqrt(-1)  # math.sqrt()


def constant_that_does_not_fit(value):
    return value + np.uint8(300)  # 300 does not fit a uint8 value


def huge_constant(value):
    return value + 10**400  # too large for a float


def huge_exponent(value):
    return value**10**400  # an integer constant is too large for a float


def rounds_to_a_run_time_digit(value, index):
    return round(value, index[0])  # round(x, digits) takes a constant number of digits, at most 300


def power_of_lists(value):
    return value ** (1, 2)  # ** does not work on a tuple


def sums_a_number(value):
    return sum(value)  # sum() takes a tuple; write a loop instead


def length_of_an_operand(value, w):
    return len(w) + value  # len() takes a tuple; for an operand write array.shape[0]


def random_numbers(value):
    return value + random.random()  # random cannot run inside a callback


def text_of_a_number(value):
    return len(str(value))  # text cannot be made inside a kernel


def converts_text(value):
    return float("1.5") * value  # the text '1.5' is not a number


AT_DEFINITION = {
    recurses_in_an_inner_function: "an inner function can only use variables that were assigned before it",
    returns_none: "The callback returns None; every path must return the element's new value",
    returns_nothing: "The callback returns None; every path must return the element's new value",
    returns_none_on_a_path: "A path returns None, another one a value; every path must return",
    returns_a_tuple: "The callback returns a tuple of 2; every path must return the element's new value",
    returns_text: "The callback returns the text 'text'",
    returns_a_function: "the function sin is not a number",
    returns_different_kinds: "Paths return values of different kinds: a float32 value and a tuple of 2",
    endless: "endless never returns",
}
ELSEWHERE = {
    tries_finally: "`try` has no meaning inside a kernel",
    undefined_name: "'undefined_factor' is not defined",
    compares_identity: "`is` compares objects, not numbers; write ==",
    grows_a_tuple: "a tuple grows beyond 64 elements",
    assigns_to_a_constant: "operand 'CONSTANT' is read-only",
}
HELPERS = {helper, other_half, helper_that_yields}
STARTS_IN = {recurses_through_another: other_half, uses_a_generator: helper_that_yields}
WRONG = [
    f
    for f in list(globals().values())
    if getattr(f, "__module__", None) == __name__ and type(f) is type(helper) and f not in HELPERS
]


def error_of(function, x=X, **operands):
    with pytest.raises(CallbackError) as caught:
        run(function, x, **operands)
    return str(caught.value)


def marked(function):
    """The number of the line that is wrong, its text, and what the message must have."""
    lines, first = inspect.getsourcelines(STARTS_IN.get(function, function))
    for number, line in enumerate(lines, first):
        code, _, comment = line.strip().partition("  # ")
        if comment and not comment.startswith("noqa"):
            return number, code, comment
    raise AssertionError(f"{function.__name__} has no comment")


@pytest.mark.parametrize("function", WRONG, ids=lambda f: f.__name__)
def test_message(function):
    operands = {"w": np.ones((2, 3))} if "w" in function.__code__.co_varnames[:3] else {}
    message = error_of(function, **operands)
    where, text, *rest = message.split("\n")
    said = " ".join(rest)
    assert "please report it" not in message
    if function in AT_DEFINITION:
        assert where == f"{__file__}:{function.__code__.co_firstlineno}, in {function.__name__}"
        assert text.strip().startswith(f"def {function.__name__}(")
        assert AT_DEFINITION[function] in said
    elif function in ELSEWHERE:
        assert where.startswith(f"{__file__}:") and where.endswith(f"in {function.__name__}")
        assert ELSEWHERE[function] in said
    else:
        number, code, expected = marked(function)
        assert where.startswith(f"{__file__}:{number}, in "), message
        assert text.strip().startswith(code)
        assert expected in said


def test_assert_and_its_text():
    source = "def function(value):\n    assert value > 0, f'not positive: {value}'\n    return value\n"
    message = error_of(define(source))
    assert ":2, in function\n    assert value > 0" in message
    assert "a callback cannot raise" in message


# --- types ------------------------------------------------------------------------------------------------------------

ON_COMPLEX_VALUES = {
    "value < 1": "complex values have no order (<); compare abs(value) or value.real",
    "max(value, 1)": "complex values have no order (>); compare abs(value) or value.real",
    "math.sin(value)": "math.sin() takes real values, not a complex one; numpy.sin takes both",
    "math.erf(value)": "math.erf() takes real values, not a complex one; use value.real, value.imag or abs(value)",
    "np.floor(value)": "numpy.floor() takes real values, not a complex one; use value.real",
    "np.maximum(value, 0)": "numpy.maximum() takes real values, not a complex one; use value.real",
    "np.arctan2(value, 1)": "numpy.arctan2() takes real values, not a complex one",
    "value // 2": "// does not take complex values",
    "value % 2": "% does not take complex values",
    "int(value)": "a complex value cannot become int64; use value.real, value.imag or abs(value)",
    "float(value)": "float() of a complex value; use value.real or abs(value)",
    "round(value)": "numpy.rint() takes real values",
    "np.float32(value)": "a complex value cannot become float32",
    "complex(value, 1)": "complex(real, imag) takes two real values",
    "index[value]": "a tuple index must be an integer, not a complex64 value",
    "mf.clamp(value, 0, 1)": "complex values have no order",
    "mf.gelu(value)": "math.erfc() takes real values",
}


@pytest.mark.parametrize("text", ON_COMPLEX_VALUES)
def test_complex_values_where_reals_are_needed(text):
    message = error_of(expression(text, "value, index"), Z)
    assert f"return {text}" in message.split("\n")[-2]  # the user's line, not the library's
    assert ON_COMPLEX_VALUES[text] in message


def test_complex_for_a_real_result():
    for real in ("float32", "float64", "int32"):
        with pytest.raises(CallbackError, match="returns a complex value where the result is") as caught:
            run(expression("value * 1j"), X, result=real)
        assert "return value * 1j" in str(caught.value)


def test_ready_made_callbacks_name_themselves():
    assert "ready_made.py" in error_of(mf.clamp(low=0, high=1), Z)


def test_unsupported_types_of_elements_name_the_nearest():
    wide = np.ones(2, np.longdouble)
    with pytest.raises(MathFuseError, match="the nearest type is float64"):
        run(expression("value"), wide)
    with pytest.raises(MathFuseError, match="the nearest type is complex128"):
        run(expression("value"), wide.astype(np.clongdouble))
    with pytest.raises(MathFuseError, match="callbacks cannot compute with datetime64"):
        run(expression("value"), np.ones(2, "M8[s]"))


def test_errors_in_a_helper_name_the_helpers_line():
    message = error_of(lambda value: helper(value, "x"))
    assert "in helper\n    return x + y\nthe text 'x' is not a number" in message


def test_a_wrong_branch_that_is_never_compiled_is_no_error():
    def function(value, index):
        if len(index) > 2:
            raise ValueError("three dimensions")
        return [value] if len(index) == 1 else value

    np.testing.assert_array_equal(run(function, X), X)


# --- anything at all --------------------------------------------------------------------------------------------------

CALLED = """
math.sin math.pow math.log math.frexp math.comb cmath.sqrt cmath.polar cmath.rect np.exp np.add np.where np.clip
np.ldexp np.angle np.float32 np.uint8 np.bool_ np.sum abs bool callable complex dict divmod enumerate eval filter
float format getattr hash id int isinstance iter len list map max memoryview min next object open pow print property
range reversed round set setattr slice sorted staticmethod str sum super tuple type vars zip mf.signed_frequency
mf.gelu mf.epilog index w value np math None
""".split()
ARGUMENTS = """value index[0] 2 -1 2.5 1j True index (1,2) () w w[index] None 'a' np slice 1e400 2**70 range(3)
range(index[0]) value.conjugate value>1 math.nan ... (lambda:1) [1] {1} {1:2} f'{value}' (value,w)""".split()
INFIX = "+ - * / // % ** @ << >> & | ^ < == is in and or".split()


def odd_expressions(count):
    choose = random.Random(0).choice
    for _ in range(count):
        a, b, c = (choose(ARGUMENTS) for _ in range(3))
        yield choose(
            [
                f"{choose(CALLED)}({a})",
                f"{choose(CALLED)}({a}, {b})",
                f"{choose(CALLED)}({a}, {b}, {c})",
                f"{a} {choose(INFIX)} {b}",
                f"{choose(['-', '~', 'not ', '+'])}{a}",
                f"{a}[{b}]",
                f"({a}).{choose(['real', 'imag', 'shape', 'T', 'x', 'conjugate()', '__class__'])}",
                f"{a} if {b} else {c}",
                f"({a})({b})",
                f"(lambda x: x {choose(INFIX)} {a})({b})",
            ]
        )


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_only_our_errors_escape():
    kinds = Counter()
    for text in odd_expressions(600):
        function = expression(text, "value, index, w")
        x = np.ones(3, random.Random(text).choice(["float32", "complex64", "int64"]))
        try:
            run(function, x, w=np.ones(3, np.float32))
            kinds["compiled"] += 1
        except MathFuseError as error:
            kinds["broken" if "please report it" in str(error) else "refused"] += 1
        except Exception as error:
            raise AssertionError(f"{text} gave {error!r}") from error
    assert not kinds.pop("broken", 0)
    assert min(kinds.values()) > 50
