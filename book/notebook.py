"""Runs a page of the book as a notebook, and holds what it printed against what the page shows.

    python book/notebook.py PAGE            fails where the page shows something else
    python book/notebook.py PAGE --write    renews what the page shows, and its pictures
    python book/notebook.py PAGE --ipynb F  keeps the notebook with all outputs in F

A cell is a block ```python of the page; all else is text. What the cell printed stands below it in a block ```text, and
its figure in `pictures`, below that. Needs nbclient, ipykernel and what the cells import. Of a figure it is tested that
it is drawn, and not how: that differs between versions of matplotlib. Numbers that a page relies on are printed.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

CELL = re.compile(
    r"^```python\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<text>.*?)^```\n)?"
    r"(?:\n!\[(?P<words>[^\]]*)\]\((?P<picture>[^)]*)\)\n)?",
    re.DOTALL | re.MULTILINE,
)


def notebook(page: str) -> tuple[nbformat.NotebookNode, list[re.Match[str]]]:
    """The page as a notebook, and where its cells are."""
    found = list(CELL.finditer(page))
    cells, before = [], 0
    for cell in found:
        if text := page[before : cell.start()].strip():
            cells.append(nbformat.v4.new_markdown_cell(text))
        cells.append(nbformat.v4.new_code_cell(cell["code"].rstrip("\n")))
        before = cell.end()
    if text := page[before:].strip():
        cells.append(nbformat.v4.new_markdown_cell(text))
    for at, cell in enumerate(cells):
        cell["id"] = f"cell-{at}"
    return nbformat.v4.new_notebook(cells=cells), found


def outputs(cell: nbformat.NotebookNode) -> tuple[str, str | None]:
    """What a cell printed, and its figure."""
    printed, figure = "", None
    for output in cell.outputs:
        if output.output_type == "stream":
            printed += output.text
        elif "image/svg+xml" in output.get("data", {}):
            figure = output.data["image/svg+xml"]
        elif "text/plain" in output.get("data", {}):
            printed += output.data["text/plain"] + "\n"
    # No line ends in blanks in the book.
    return "".join(line.rstrip() + "\n" for line in printed.splitlines()), figure


def main() -> str | None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--ipynb", type=Path)
    options = parser.parse_args()
    page = options.page.read_text()
    book, found = notebook(page)
    with tempfile.TemporaryDirectory() as here:
        NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": here}}).execute()
    if options.ipynb:
        nbformat.write(book, options.ipynb)
    codes = [cell for cell in book.cells if cell.cell_type == "code"]
    new, before, wrong, figures = "", 0, [], 0
    for at, (cell, match) in enumerate(zip(codes, found, strict=True), 1):
        printed, figure = outputs(cell)
        figures += figure is not None
        picture = match["picture"] or f"pictures/{options.page.stem}-{figures}.svg"
        if printed != (match["text"] or ""):
            wrong.append(f"cell {at} printed\n{printed}and the page has\n{match['text'] or 'nothing'}")
        if (figure is None) != (match["picture"] is None):
            wrong.append(f"cell {at}: a figure is here or in the page, and not in both")
        new += page[before : match.start()] + f"```python\n{match['code']}```\n"
        if printed:
            new += f"\n```text\n{printed}```\n"
        if figure is not None:
            new += f"\n![{match['words'] or 'What the cell drew'}]({picture})\n"
            if options.write:
                lines = (line.rstrip() for line in figure.splitlines())
                (options.page.parent / picture).write_text("\n".join(lines) + "\n")
            elif not (options.page.parent / picture).is_file():
                wrong.append(f"cell {at}: {picture} is not there")
        before = match.end()
    if options.write:
        options.page.write_text(new + page[before:])
    elif wrong:
        return "\n".join([*wrong, f"renew it: python book/notebook.py {options.page} --write"])
    print(f"{options.page}: {len(codes)} cells, {figures} figures")
    return None


if __name__ == "__main__":
    sys.exit(main())
