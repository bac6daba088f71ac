"""Renews the table of the book on what the users of ephemeral mappings gain.

    python book/disks.py FOLDER [--check]     from the results that `pageferry reproduce --out FOLDER` has left there

What stands in the first two columns of the table in `src/disks.md` says which rows it has; the others are replaced. It
fails where the results lack one of them.
"""

import argparse
from pathlib import Path

import measured

PAGE = Path(__file__).parent / "src" / "disks.md"
#: The users as the experiment names them, by how the table does.
USERS = {
    "memory disk": "memory-disk",
    "ptrace": "ptrace",
    "vnode pager, blocks of 1 KB": "vnode-pager",
    "exec, a header's page": "exec",
    "pipe": "pipe",
    "socket, pages on loan": "socket",
}
#: The metrics of the columns behind the totals: addresses, invalidations here and elsewhere, the mappings themselves.
PARTS = ["address_cycles_per_page", "local_cycles_per_page", "remote_cycles_per_page", "mapping_cycles_per_page"]
TOTAL = "elapsed_cycles_per_page"


def of_users(folder: Path) -> dict[tuple[object, ...], dict[str, float]]:
    """The results of the experiment by user, machine and kernel: the kernels as they are, and no other scheme."""
    return {
        (told["user"], told["machine"], told["kernel"]): values
        for told, values in measured.results(folder)
        if told["experiment"] == "ephemeral-schemes" and not any(key.startswith("kernel.") for key in told)
    }


def renewed(page: str, found: dict[tuple[object, ...], dict[str, float]]) -> str:
    lines, user, inside = [], "", False
    for line in page.splitlines():
        if line.startswith("| user | machine |"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|--"):
            name, machine = (cell.strip() for cell in line.split("|")[1:3])
            user = USERS[name] if name else user
            original, sf_buf = (found[user, machine, kernel] for kernel in ("original", "sf_buf"))
            cells = [name, machine, f"{original[TOTAL]:,.0f}", f"{sf_buf[TOTAL]:,.0f}"]
            cells += [f"{original[part]:,.0f} → {sf_buf[part]:,.0f}" for part in PARTS]
            line = ("| " + " | ".join(cells) + " |").replace("|  |", "| |")
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is not as it should be")
    given = parser.parse_args()
    measured.renew(PAGE, renewed(PAGE.read_text(), of_users(given.folder)), given.check)


if __name__ == "__main__":
    main()
