"""Users: the end users of a product, what is known of each, and everything of theirs exported or erased; threads."""

from app.domains import Domain

domain = Domain(routers=("app.users.routes",), jobs=("app.users.tasks",))
