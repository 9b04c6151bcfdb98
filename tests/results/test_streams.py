"""Members of a zip archive that cannot be read are refused on one line, with the fix."""

import zipfile
from pathlib import Path

import pytest

from gapscope.errors import InputError
from gapscope.results.streams import open_zip, zip_json


def with_field(path: Path, local: int, central: int, value: int) -> Path:
    """An archive with one stored member, and a number put into its two headers at these places."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("log.json", "{}")
    data = bytearray(path.read_bytes())
    data[local] = data[data.index(b"PK\x01\x02") + central] = value
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("local", "central", "value", "said"),
    [(8, 10, 97, "compression method 97 is not known here"), (6, 8, 1, "cannot be read here: File 'log.json' is encrypted")],
)
def test_what_cannot_be_unpacked_names_the_way_to_convert_it(tmp_path: Path, local: int, central: int, value: int, said: str) -> None:
    path = with_field(tmp_path / "log.eval", local, central, value)
    with open_zip(path) as archive, pytest.raises(InputError, match=said) as caught:
        zip_json(archive, "log.json", path, "convert it")
    assert "log.eval: log.json: " in str(caught.value) and "(convert it)" in str(caught.value)
