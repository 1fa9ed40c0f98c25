"""Sphinx: Markdown by MyST, looks by Furo, the reference written from the code on every build."""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402

project = "Moonpool"
author = "the Moonpool authors"
copyright = author
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["version"]
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "reference/generated"]
default_role = "code"
nitpicky = False

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
autodoc_class_signature = "separated"

html_theme = "furo"
html_title = f"Moonpool {release}"
html_static_path = ["pictures"]
html_show_sphinx = False
html_copy_source = False

generate.write_all(HERE / "reference" / "generated")
