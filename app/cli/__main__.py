"""`python -m app.cli`, which is how the supervisor starts its worker."""

import sys

from app.cli.main import main

sys.exit(main())
