"""Makes minimal XLSX workbooks for tests."""

import io
from zipfile import ZIP_DEFLATED, ZipFile

TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
STYLES = (
    '<numFmts><numFmt numFmtId="170" formatCode="[$-407]dd.mm.yyyy;@"/></numFmts>'
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="170"/>'
    '<xf numFmtId="9"/><xf numFmtId="22"/></cellXfs>'
)


def cells(*rows: str) -> str:
    """Return the data of a sheet. Each row is the XML of its cells."""
    return "".join(f"<row>{row}</row>" for row in rows)


def text_row(*texts: str) -> str:
    return "".join(f'<c t="inlineStr"><is><t>{text}</t></is></c>' for text in texts)


def workbook(
    strings: str = "", properties: str = "", declaration: str = "", /, **sheets: str
) -> bytes:
    """Return a workbook. `sheets` are the rows of each sheet as XML.

    `declaration` is put before the XML of each sheet.
    """
    file = io.BytesIO()
    numbers = range(1, len(sheets) + 1)
    listed = "".join(
        f'<sheet name="{name}" sheetId="{n}" r:id="r{n}"/>' for n, name in zip(numbers, sheets, strict=True)
    )  # fmt: skip
    relations = [(f"r{n}", "worksheet", f"worksheets/sheet{n}.xml") for n in numbers]
    relations += [("s", "styles", "styles.xml"), ("t", "sharedStrings", "/xl/strings.xml")]
    parts = {
        "_rels/.rels": _relations([("r", "officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{TYPES}">{properties}<sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": _relations(relations),
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}">{STYLES}</styleSheet>',
        "xl/strings.xml": f'<sst xmlns="{MAIN}">{strings}</sst>',
    }
    for number, rows in zip(numbers, sheets.values(), strict=True):
        data = f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'
        parts[f"xl/worksheets/sheet{number}.xml"] = declaration + data
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def _relations(rows: list[tuple[str, str, str]]) -> str:
    listed = "".join(
        f'<Relationship Id="{id_}" Type="{TYPES}/{type_}" Target="{target}"/>'
        for id_, type_, target in rows
    )
    return f"<Relationships>{listed}</Relationships>"
