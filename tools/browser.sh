#!/bin/sh
# Get what the browser tests need, as far as it can be had: tools/browser.sh FOLDER. What is missing makes them skip and say so.
set -u
folder=$1

if [ ! -e "$folder/.packages" ] || [ requirements/browser.txt -nt "$folder/.packages" ]; then
    if uv pip install --quiet --target "$folder" -r requirements/browser.txt; then
        touch "$folder/.packages"
    else
        echo "The packages of requirements/browser.txt cannot be had, so browser tests are skipped." >&2
    fi
fi

if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends chromium >"$folder/chromium.log" 2>&1 ||
            echo "Chromium cannot be installed (see $folder/chromium.log), so browser tests are skipped." >&2
    else
        echo "There is no Chromium, so browser tests are skipped. Install the package chromium." >&2
    fi
fi
exit 0
