"""${message}"""

from alembic import op
from app.db.functions import remove_functions

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None

# Set to one more than before when processes of the previous release cannot work with this schema.
# compatibility_level = 2


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    remove_functions(op.get_bind())
    ${downgrades if downgrades else "pass"}
