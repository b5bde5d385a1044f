"""Names that the newer end has under another name everywhere."""

from lab.bisection import renames
from lab.bisection.hunks import Hunk


def hunk(old: str, new: str) -> Hunk:
    lines = [*(f"-{line}" for line in old.splitlines()), *(f"+{line}" for line in new.splitlines())]
    return Hunk(path="mm/a.c", lines=lines)


def test_a_name_that_stands_for_another_in_most_lines_is_a_candidate() -> None:
    found = renames.candidates([
        hunk("if (pte_uffd_wp(pte))", "if (pte_uffd(pte))"),
        hunk("\tx = pte_uffd_wp(p);\n\ty = 1;", "\tx = pte_uffd(p);\n\ty = 1;"),
        hunk("pte_uffd_wp(p);", "pte_uffd(p, true);"),  # more than names
        hunk("old_page(page);", "old_folio(folio);"),  # once
        hunk("if (CONFIG_OLD)", "if (CONFIG_NEW)"), hunk("CONFIG_OLD", "CONFIG_NEW"),
        hunk("return here;", "return there;"), hunk("return here;", "return where;"),  # two names for one
        hunk("is_cow(flags);", "vma_is_cow(area);"), hunk("is_cow(vm_flags);", "vma_is_cow(area);"),  # of another thing
    ])  # fmt: skip
    assert found == {"pte_uffd_wp": "pte_uffd"}


def test_only_a_name_that_is_gone_everywhere_is_a_rename() -> None:
    found = {"gone": "come", "left": "right", "once": "here"}
    old = [b"gone left once(); // come", b'"come" here']
    new = [b"come right here(); /* gone\n once */", b'left "gone"']
    names = renames.everywhere(found, old, new)
    assert names == {"gone": "come"}
    assert renames.renamed(b'gone(); // gone\n"gone" gone_too /* gone */', names) == (
        b'come(); // gone\n"gone" gone_too /* gone */'
    )
