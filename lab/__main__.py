import sys

from lab.command.cli import main

sys.exit(main())
