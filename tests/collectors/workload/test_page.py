"""Reading pages: what is found, what is refused, and that nothing else can happen."""

import math
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.collectors.workload.workload_pages import Work, vllm

from flyball_collectors.workload.scraping.meter import quantile
from flyball_collectors.workload.scraping.page import PageError, Reader, Sample
from flyball_collectors.workload.scraping.selector import Samples, parse_terms
from flyball_contracts.errors import ConfigError

INF = math.inf
NAMES = ["a_total", "a", "b:c", "b:c_bucket"]


def test_only_what_is_requested_is_read() -> None:
    found = Reader(["vllm:num_requests_running", "vllm:e2e_request_latency_seconds_bucket"]).read(vllm(Work(active=3)))
    assert found[0] == Sample("vllm:num_requests_running", {"engine": "0", "model_name": "org/Model-8B"}, 3.0)
    assert {sample.name for sample in found[1:]} == {"vllm:e2e_request_latency_seconds_bucket"}
    assert found[-1].labels["le"] == "+Inf"


@pytest.mark.parametrize(
    ("line", "value", "labels"),
    [
        ("a 1", 1.0, {}),
        ("a\t-2.5e3\r", -2500.0, {}),
        ("  a{} +Inf 1700000000000", INF, {}),
        ("a .5 1700000000.123", 0.5, {}),
        ('a{x="1",} 2', 2.0, {"x": "1"}),
        ('a { x = "1" , y="2" } 3', 3.0, {"x": "1", "y": "2"}),
        (r'a{x="q\"} b\\\n{",y="é,"} 4', 4.0, {"x": 'q"} b\\\n{', "y": "é,"}),
        ('a{le="1.0"} 17 # {trace_id="} x"} 0.67 1700000000', 17.0, {"le": "1.0"}),
        ("a 5 # {} 1", 5.0, {}),
    ],
)
def test_lines_of_both_formats(line: str, value: float, labels: dict[str, str]) -> None:
    assert Reader(["a"]).read(f"# TYPE a gauge\n{line}\n# EOF\n") == [Sample("a", labels, value)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a one", r"line 3: 'a one' is not a sample"),
        ("a 1_000", "is not a sample"),
        ("a ", "is not a sample"),
        ('a{x="1} 2', "is not a sample"),
        ('a{x="1"', "is not a sample"),
        ("a{x=1} 2", "is not a sample|has labels that cannot be read"),
        ('a{x="1" y="2"} 2', "has labels that cannot be read"),
        ("a{" + "x" * 500, r"x\.\.\.' is not a sample"),
    ],
)
def test_a_broken_line_is_named(line: str, expected: str) -> None:
    with pytest.raises(PageError, match=expected):
        Reader(["a"]).read(f"# HELP a b\nother 1\n{line}\na 1\n")


def test_a_page_of_something_else_is_refused_but_an_empty_one_is_not() -> None:
    for page in ("<!doctype html><title>a</title>", "other_total 3\n", "{} 1\n", "\x1f\ufffd\x08\x00compressed"):
        with pytest.raises(PageError, match="none of its series is known; check that url"):
            Reader(["a"]).read(page)
    with pytest.raises(PageError, match="none of its series"):
        Reader(["a"]).read("\x1f\ufffd\x08", may_lack=True)
    assert Reader(["a"]).read("") == Reader(["a"]).read("# HELP a b\n# TYPE a counter\n\n") == []
    assert Reader([]).read("") == []


@given(
    st.lists(st.sampled_from(["a", "a{", '"', "}", " ", "1", "\\", ",", "=", "\n", "x", "#", "é", "\x00"])).map("".join)
)
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = Reader(["a"]).read(text)
    except PageError:
        return
    assert all(sample.name == "a" for sample in found)


@pytest.mark.parametrize("unit", [" ", "{", '"', "\\", 'x="1",', " 1 #", "1", "\t\n", "#"])
def test_a_long_hostile_page_ends_as_well(unit: str) -> None:
    """What backtracks here would run into the time limit of the tests."""
    for start in ("a", 'a{x="', "a{", ""):
        page = start + unit * (1_000_000 // len(unit))
        with suppress(PageError):
            Reader(["a"]).read(page)


LABEL_VALUES = st.text(
    st.characters(exclude_characters="\r\x85\u2028\u2029", exclude_categories=["Cs", "Cc"])
    | st.sampled_from('\\"\n{},=')
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.dictionaries(st.sampled_from(["x", "le", "model_name"]), LABEL_VALUES, max_size=3),
            st.floats(allow_nan=False),
        )
    )
)
@settings(max_examples=200, deadline=None)
def test_it_reads_what_the_reference_parser_reads(samples: list[tuple[str, dict[str, str], float]]) -> None:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    page = "".join(
        f"{name}{{{','.join(f'{k}={chr(34)}{escaped(v)}{chr(34)}' for k, v in labels.items())}}} {value!r}\n"
        for name, labels, value in samples
    )
    expected = [
        (sample.name, sample.labels, sample.value)
        for metric in text_string_to_metric_families(page)
        for sample in metric.samples
    ]
    assert [(s.name, dict(s.labels), s.value) for s in Reader(NAMES).read(page)] == expected


def test_selectors_add_up_what_they_select() -> None:
    page = Reader(["a", "b"]).read('a{r="x"} 1\na{r="y"} 2\na 4\nb{r="y"} 8\nb{r="z"} NaN\n')
    samples = Samples(page, {}, ())

    def total(text: str) -> float:
        return sum(samples.values(parse_terms(text, "here")).values())

    assert total("a") == 7
    assert total('a{r="x"}') == 1
    assert total('a{r!="x"}') == 6
    assert total('a{r=""}') == 4
    assert total('a + b{ r = "y" , q="" }') == 15
    assert total("c") == 0
    kept = Samples(page, {"r": "y"}, ())
    assert sum(kept.values(parse_terms("a + b", "here")).values()) == 14  # what has no such label is kept
    copies = Samples(page, {}, ("r",))
    assert sum(copies.values(parse_terms("a", "here")).values()) == 4


@pytest.mark.parametrize("text", ["", "1a", "a{", "a{x}", 'a{x=~"y"}', "a b", "a +", "+ a", 'a{x="1"} b'])
def test_a_selector_that_cannot_be_read_names_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^agent\.here: "):
        parse_terms(text, "agent.here")


def test_quantiles_are_those_of_prometheus() -> None:
    assert quantile(0.5, {1.0: 2.0, 2.0: 4.0, INF: 4.0}) == 1.0
    assert quantile(0.75, {1.0: 2.0, 2.0: 4.0, INF: 4.0}) == 1.5
    assert quantile(0.99, {1.0: 0.0, 2.0: 1.0, INF: 4.0}) == 2.0  # beyond the last finite bound
    assert quantile(0.25, {1.0: 4.0, INF: 4.0}) == 0.25  # from 0 up to the lowest bound
    assert quantile(0.5, {-1.0: 4.0, 1.0: 4.0, INF: 4.0}) == -1.0
    assert quantile(0.9, {1.0: 3.0, 2.0: 2.0, INF: 4.0}) == 2.0  # counts that fall are evened out
    for nothing in ({}, {INF: 3.0}, {1.0: 1.0, 2.0: 2.0}, {1.0: 0.0, INF: 0.0}):
        assert math.isnan(quantile(0.99, nothing))


@given(st.lists(st.floats(0.001, 200.0), min_size=1, max_size=50), st.floats(0.01, 0.99))
@settings(deadline=None)
def test_a_quantile_is_in_the_bucket_of_the_true_one(values: list[float], q: float) -> None:
    bounds = [0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0]
    buckets = {bound: float(sum(v <= bound for v in values)) for bound in [*bounds, INF]}
    true = sorted(values)[math.ceil(q * len(values) - 1e-9) - 1]
    at = next((i for i, bound in enumerate(bounds) if true <= bound), len(bounds))
    low, high = (0.0, *bounds)[at], bounds[min(at, len(bounds) - 1)]
    assert min(low, high) - 1e-9 <= quantile(q, buckets) <= high + 1e-9
