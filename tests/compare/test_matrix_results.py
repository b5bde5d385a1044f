"""Axes: which arms a command line spans, what they are called, and what is refused."""

import pytest

from lab.compare import matrix_results
from lab.core.errors import UserError
from lab.kernels import spec


def test_settings_span_every_combination_the_last_one_fastest() -> None:
    span = matrix_results.span(["v6.12"], ["thp=always,never", "thp.defrag=defer,defer+madvise,never"])
    assert [(axis.name, axis.values) for axis in span.axes] == [
        ("kernel", ("v6.12",)),
        ("thp", ("always", "never")),
        ("thp.defrag", ("defer", "defer+madvise", "never")),
    ]
    assert [arm.at[1:] for arm in span.arms] == [
        ("always", "defer"), ("always", "defer+madvise"), ("always", "never"),
        ("never", "defer"), ("never", "defer+madvise"), ("never", "never"),
    ]  # fmt: skip
    assert dict(spec.parse(span.arms[1].spec).settings) == {"thp": "always", "thp.defrag": "defer+madvise"}
    assert {spec.parse(arm.spec).body for arm in span.arms} == {"v6.12"}


def test_only_what_varies_is_in_a_label() -> None:
    assert [arm.label for arm in matrix_results.span(["v6.12"], ["thp=always,never", "hugepages=8"]).arms] == [
        "thp=always", "thp=never",
    ]  # fmt: skip
    assert [arm.label for arm in matrix_results.span(["a=v6.1", "deb:6.12"], []).arms] == ["a", "deb:6.12"]
    assert matrix_results.span(["a=v6.1", "b=v6.12"], ["thp=always,never"]).arms[3].label == "b thp=never"


@pytest.mark.parametrize(("text", "label", "spec"), [
    ("before=d4148aeab412", "before", "d4148aeab412"),
    ("a.b-1=HEAD~3@thp=never", "a.b-1", "HEAD~3@thp=never"),
    ("fixed=v6.12+x.patch@cmdline.tax=0", "fixed", "v6.12+x.patch@cmdline.tax=0"),
    ("HEAD@thp=never", "HEAD@thp=never", "HEAD@thp=never"),
    ("HEAD%CONFIG_KSM=n", "HEAD%CONFIG_KSM=n", "HEAD%CONFIG_KSM=n"),
    ("v6.12+x.patch@cmdline.tax=0", "v6.12+x.patch@cmdline.tax=0", "v6.12+x.patch@cmdline.tax=0"),
    ("file:/boot/a=b", "file:/boot/a=b", "file:/boot/a=b"),
])  # fmt: skip
def test_a_kernel_may_have_a_name(text: str, label: str, spec: str) -> None:
    span = matrix_results.span([text, "other=v6.1"], [])
    assert (span.arms[0].label, span.arms[0].spec, span.kernels[0]) == (label, spec, spec)


@pytest.mark.parametrize(("kernels", "settings", "words"), [
    ([], ["thp=always,never"], "no kernel"),
    (["v6.12"], [], "one arm"),
    (["v6.12"], ["thp=never"], "one arm"),
    (["v6.12"], ["thp"], "KEY=VALUE"),
    (["v6.12"], ["=always"], "KEY=VALUE"),
    (["v6.12"], ["thp.defrag=always,bogus"], "thp.defrag=bogus"),
    (["v6.12"], ["thp=always,"], "thp=: not a value"),
    (["v6.12"], ["tph=always,never"], "unknown setting 'tph'"),
    (["v6.12"], ["thp=always,never,always"], "thp always is given twice"),
    (["v6.12"], ["thp=always", "thp=never"], "--set thp is given twice"),
    (["v6.12@thp=never"], ["thp=always,never"], "thp is given twice"),
    (["v6.12", "v6.12"], [], "kernel v6.12 is given twice"),
    (["a=v6.12", "a=v6.1"], [], "kernel a is given twice"),
    (["deb:6.12"], ["CONFIG_KSM=y,n"], "built already"),
    (["v6.12"], ["CONFIG_KSM=y,maybe"], "not a kconfig value"),
])  # fmt: skip
def test_what_spans_nothing_is_refused(kernels: list[str], settings: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        matrix_results.span(kernels, settings)


def test_the_baseline_is_the_first_or_the_one_that_words_name() -> None:
    arms = matrix_results.span(["a=v6.1", "b=v6.12"], ["thp=always,never", "thp.defrag=defer,never"]).arms
    assert matrix_results.choose(arms, None) is arms[0]
    assert matrix_results.choose(arms, "b thp=never thp.defrag=defer").at == ("b", "never", "defer")
    assert matrix_results.choose(arms, "b,thp=always,defer").at == ("b", "always", "defer")
    with pytest.raises(UserError, match="fits several arms"):
        matrix_results.choose(arms, "b")
    with pytest.raises(UserError, match="is no arm") as caught:
        matrix_results.choose(arms, "c")
    assert "'a thp=always thp.defrag=defer'" in str(caught.value.hint)


def test_file_names_are_harmless_and_different() -> None:
    assert matrix_results.file_names(["thp=never x.y=1", "thp=never,x.y=1", "thp-never-x.y-1"]) == [
        "thp-never-x.y-1", "thp-never-x.y-1-2", "thp-never-x.y-1-3",
    ]  # fmt: skip
    assert matrix_results.file_names(["file:/boot/a", "../..", "HEAD^"]) == ["file-boot-a", "arm", "HEAD^"]
