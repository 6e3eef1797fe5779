#!/bin/sh
# Build the pages in docs/ and the reference of every plugin and role into build/docs/html.
set -eu
source=build/docs/source

rm -rf build/docs
mkdir -p "$source/reference" "$source/platforms"
cp docs/*.md docs/*.json docs/docsite/conf.py "$source"
cp docs/platforms/*.md "$source/platforms"
cp -r docs/images "$source"
# antsibull-docs refuses a folder that others may write to.
chmod go-w "$source/reference"
antsibull-docs collection --use-current --squash-hierarchy --fail-on-error --dest-dir "$source/reference" vgpu.fleet
sphinx-build --quiet --fail-on-warning --keep-going "$source" build/docs/html
echo "build/docs/html/index.html"
