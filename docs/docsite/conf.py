"""Sphinx settings of the documentation that `make docs` builds."""

project = "vgpu.fleet"
author = "The vgpu.fleet contributors"

extensions = ["myst_parser", "sphinx_antsibull_ext"]
myst_heading_anchors = 3
highlight_language = "YAML+Jinja"
pygments_style = "ansible"

html_theme = "sphinx_ansible_theme"
html_title = "vgpu.fleet"
html_copy_source = False
html_show_sphinx = False

# The reference links into the documentation of ansible-core, which is not at hand: a build needs no network.
suppress_warnings = ["ref.ref"]
