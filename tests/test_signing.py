"""Signatures made in the database: Ed25519 as the standard has it, of receipts alone, with a seed that nobody reads."""

import base64
import hashlib
from collections.abc import Iterator
from typing import Any, cast
from uuid import uuid4

import msgspec
import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from app.db.catalogue import find_drift
from app.db.functions import owner_functions
from app.db.rls import APP_ROLE
from app.db.schema import load_metadata
from app.db.scope import Scope
from app.errors import StartupError
from app.main import open_database
from app.signing import Signer
from tests.conftest import TestDatabase
from tests.long import sized

# RFC 8032, section 7.1: seed, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe2465"
        "5141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb0"
        "0d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc0"
        "27beceea1ec40a",
    ),
    (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        hashlib.sha512(b"abc").hexdigest(),
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9"
        "bef1177331a704",
    ),
]

SIGN = """
    SELECT ed25519_sign(given.seed, given.public_key, given.message)
    FROM unnest(%b::bytea[], %b::bytea[], %b::bytea[]) WITH ORDINALITY AS given (seed, public_key, message, number)
    ORDER BY given.number"""

SEED_STATEMENTS = [
    "SELECT seed FROM signing_keys",
    "SELECT * FROM signing_keys",
    "SELECT k FROM signing_keys k",
    "SELECT to_jsonb(k) FROM signing_keys k",
    "SELECT max(length(seed)) FROM signing_keys",
    "SELECT public_key FROM signing_keys WHERE seed > ''",
    "SELECT public_key FROM signing_keys ORDER BY seed",
    "SELECT query_to_xml('SELECT seed FROM signing_keys', true, true, '')",
    "COPY signing_keys TO STDOUT",
    "UPDATE signing_keys SET public_key = public_key RETURNING seed",
    "DELETE FROM signing_keys RETURNING seed",
    "INSERT INTO signing_keys VALUES ('receipts', '', '') ON CONFLICT (purpose) DO UPDATE SET seed = ''",
    "CREATE TEMP VIEW copied AS SELECT seed FROM signing_keys; SELECT * FROM copied",
    "LOCK signing_keys",
    "SELECT ed25519_sign('', '', '')",
    "SELECT ed25519_multiply('')",
    "SELECT bytes_to_number('')",
]

Superuser = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def superuser(database: TestDatabase) -> Iterator[Superuser]:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        yield connection


@pytest.fixture
def app(database: TestDatabase) -> Iterator[Superuser]:
    """A session of the service's role in the scope of a tenant, rolled back afterwards."""
    with psycopg.connect(database.app) as connection:
        connection.execute("SELECT set_scope('acme', 'default', NULL, NULL, NULL)")
        yield connection
        connection.rollback()


@pytest.fixture(scope="module")
def public_key(superuser: Superuser) -> bytes:
    return value(superuser, "SELECT public_key FROM signing_keys")


@pytest.fixture(scope="module")
def seed(superuser: Superuser) -> bytes:
    return value(superuser, "SELECT seed FROM signing_keys")


@pytest.fixture
def receipt(superuser: Superuser, public_key: bytes) -> dict[str, Any]:
    """The receipt of an erasure that has none yet."""
    return new_receipt(superuser, public_key)


def new_receipt(superuser: Superuser, public_key: bytes) -> dict[str, Any]:
    tombstone_id = str(uuid4())
    superuser.execute(
        "INSERT INTO tombstones (tenant_id, tombstone_id, project_id, entity_id, reason, created_by, key_id, "
        "created_at, legal_hold, erase, erased_at, named) "
        "VALUES ('acme', %s, 'default', gen_random_uuid(), '', 'x', 'x', now(), false, true, now(), true)",
        (tombstone_id,),
    )
    return {
        "algorithm": "Ed25519",
        "columns_checked": 200,
        "project_id": "default",
        "public_key": base64.b64encode(public_key).decode(),
        "searched_for": {"names": True, "values": 2},
        "tenant_id": "acme",
        "tombstone_id": tombstone_id,
    }


def value(connection: Superuser, query: str, *params: Any) -> Any:
    """The only value of a query."""
    row = connection.execute(query.encode(), params).fetchone()
    assert row is not None
    return row[0]


def encoded(receipt: dict[str, Any]) -> str:
    return msgspec.json.encode(receipt, order="sorted").decode()


def signed_by_database(superuser: Superuser, signed: list[tuple[bytes, bytes]]) -> list[bytes]:
    """The signatures that the database makes of messages, each with its seed."""
    keys = [Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() for seed, _ in signed]
    rows = superuser.execute(SIGN, ([seed for seed, _ in signed], keys, [message for _, message in signed]))
    return [signature for (signature,) in rows.fetchall()]


def test_signatures_are_those_of_the_standard(superuser: Superuser) -> None:
    signed = [(bytes.fromhex(seed), bytes.fromhex(message)) for seed, message, _ in VECTORS]
    expected = [bytes.fromhex(signature) for _, _, signature in VECTORS]
    assert signed_by_database(superuser, signed) == expected


def test_signatures_are_those_of_the_library(superuser: Superuser) -> None:
    pairs = st.tuples(st.binary(min_size=32, max_size=32), st.binary(max_size=300))

    @settings(max_examples=sized(10, 100), deadline=None, database=None)
    @given(st.lists(pairs, min_size=5, max_size=15))
    def check(signed: list[tuple[bytes, bytes]]) -> None:
        expected = [Ed25519PrivateKey.from_private_bytes(seed).sign(message) for seed, message in signed]
        assert signed_by_database(superuser, signed) == expected

    check()


def test_the_service_gets_the_receipt_of_an_erasure_signed(
    app: Superuser, receipt: dict[str, Any], public_key: bytes
) -> None:
    text = encoded(receipt)
    signature = value(app, "SELECT sign_receipt(%s)", text)
    Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text.encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant_id": "rival"},
        {"project_id": "other"},
        {"tombstone_id": "00000000-0000-7000-8000-000000000001"},
        {"tombstone_id": None},
        {"public_key": base64.b64encode(bytes(32)).decode()},
        {"algorithm": "None"},
        {"a_first_field": 1},
    ],
    ids=str,
)
def test_nothing_but_a_receipt_of_an_erasure_is_signed(
    app: Superuser, receipt: dict[str, Any], changes: dict[str, Any]
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="only the receipt of an erasure"):
        app.execute("SELECT sign_receipt(%s)", (encoded({**receipt, **changes}),))


@pytest.mark.parametrize("text", [None, "", "a text", "[]", '{"algorithm":"Ed25519","columns_checked":', "twice"])
def test_other_texts_are_not_signed(app: Superuser, receipt: dict[str, Any], text: str | None) -> None:
    if text == "twice":
        # Two readers could each take another one of these tenants.
        text = encoded(receipt).replace('"tenant_id"', '"tenant_id":"rival","tenant_id"')
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="only the receipt of an erasure"):
        app.execute("SELECT sign_receipt(%s)", (text,))


def test_an_erasure_with_a_receipt_gets_no_other_one_signed(
    app: Superuser, superuser: Superuser, receipt: dict[str, Any]
) -> None:
    superuser.execute(
        "INSERT INTO erasure_receipts VALUES ('acme', gen_random_uuid(), 'default', %s, '{}', '', '', now())",
        (receipt["tombstone_id"],),
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="that has none"):
        app.execute("SELECT sign_receipt(%s)", (encoded(receipt),))


def test_an_erasure_that_is_not_done_gets_no_receipt_signed(
    app: Superuser, superuser: Superuser, receipt: dict[str, Any]
) -> None:
    superuser.execute("UPDATE tombstones SET erased_at = NULL WHERE tombstone_id = %s", (receipt["tombstone_id"],))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="only the receipt of an erasure"):
        app.execute("SELECT sign_receipt(%s)", (encoded(receipt),))


@pytest.mark.parametrize("statement", SEED_STATEMENTS)
def test_the_service_cannot_read_the_seed(app: Superuser, statement: str, seed: bytes) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        app.execute(statement.encode())
    assert seed.hex() not in str(refused.value)


def test_the_seed_is_in_no_function_statistic_or_plan(
    app: Superuser, superuser: Superuser, receipt: dict[str, Any], seed: bytes
) -> None:
    superuser.execute("ANALYZE signing_keys")
    said: list[str] = []
    app.add_notice_handler(lambda notice: said.append(f"{notice.message_primary} {notice.message_detail}"))
    for setting in ("debug_print_plan", "debug_print_rewritten", "debug_print_parse", "plpgsql.print_strict_params"):
        app.execute(f"SET {setting} = on".encode())
    app.execute("SET debug_pretty_print = off")
    app.execute("SET plan_cache_mode = force_custom_plan")
    app.execute("SET client_min_messages = debug5")
    app.execute("SELECT sign_receipt(%s)", (encoded(receipt),))
    app.execute("SET client_min_messages = error")
    assert any("sign_receipt" in line or "plan" in line for line in said), "or nothing was printed at all"
    said += [str(row) for row in app.execute("SELECT prosrc FROM pg_proc WHERE prosrc ~ 'seed'")]
    said += [str(row) for row in app.execute("SELECT s FROM pg_stats s WHERE tablename = 'signing_keys'")]
    said += [str(row) for row in app.execute("TABLE service_secrets")]
    everything = " ".join("\n".join(said).split())
    # The hash of the seed is as good as the seed. Plans print bytes as signed decimals, in lines.
    for secret in (seed, hashlib.sha512(seed).digest()):
        decimals = " ".join(str(byte - 256 if byte > 127 else byte) for byte in secret)
        assert not [spelled for spelled in (secret.hex(), repr(secret), decimals) if spelled in everything]


def test_a_signature_that_is_cut_off_tells_nothing(app: Superuser, receipt: dict[str, Any], seed: bytes) -> None:
    told: list[str] = []
    for milliseconds in range(1, 9):
        try:
            with app.transaction():
                app.execute(f"SET LOCAL statement_timeout = '{milliseconds}ms'".encode())
                app.execute("SELECT sign_receipt(%s)", (encoded(receipt),))
        except psycopg.errors.QueryCanceled as cut:
            told.append(f"{cut} {cut.diag.message_detail} {cut.diag.context}")
    assert "canceling statement due to statement timeout" in told[0]
    assert seed.hex() not in "\n".join(told)


@pytest.mark.anyio
async def test_a_key_that_does_not_fit_is_noticed_before_a_receipt_is_stored(
    database: TestDatabase, receipt: dict[str, Any]
) -> None:
    db = open_database(database.settings())
    await db.open()
    try:
        signer = Signer(db, None)
        who = Scope(tenant_id="acme", project_id="default")
        async with db.tenant(who) as session:
            assert len(await signer.sign_receipt(session, encoded(receipt))) == 64
            cast(Any, signer)._public_key = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
            with pytest.raises(StartupError, match="does not fit the public key"):
                await signer.sign_receipt(session, encoded(receipt))
    finally:
        await db.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("drift", "undo", "named"),
    [
        (
            f"GRANT SELECT (seed) ON signing_keys TO {APP_ROLE}",
            f"REVOKE SELECT (seed) ON signing_keys FROM {APP_ROLE}",
            "table signing_keys: the service may SELECT (seed)",
        ),
        (
            f"GRANT SELECT ON signing_keys TO {APP_ROLE}",
            f"REVOKE SELECT ON signing_keys FROM {APP_ROLE}; "
            f"GRANT SELECT (purpose), SELECT (public_key) ON signing_keys TO {APP_ROLE}",
            "table signing_keys: the service may SELECT;",
        ),
        (
            "GRANT EXECUTE ON FUNCTION ed25519_sign TO PUBLIC",
            "REVOKE EXECUTE ON FUNCTION ed25519_sign FROM PUBLIC",
            "function ed25519_sign: the service may call it",
        ),
        (
            f"REVOKE EXECUTE ON FUNCTION sign_receipt FROM {APP_ROLE}",
            f"GRANT EXECUTE ON FUNCTION sign_receipt TO {APP_ROLE}",
            "function sign_receipt: the service may not call it",
        ),
        (
            "ALTER FUNCTION ed25519_sign RENAME TO ed25519_signed",
            "ALTER FUNCTION ed25519_signed RENAME TO ed25519_sign",
            "function ed25519_sign is missing",
        ),
    ],
    ids=lambda text: text[:50],
)
async def test_a_database_that_gives_the_seed_away_is_refused(
    database: TestDatabase, superuser: Superuser, drift: str, undo: str, named: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database.app, autocommit=True) as connection:
        assert await find_drift(connection, load_metadata()) == []
        superuser.execute(drift.encode())
        try:
            (found,) = await find_drift(connection, load_metadata())
        finally:
            superuser.execute(undo.encode())
        assert named in found
        assert await find_drift(connection, load_metadata()) == []


def test_only_the_owner_calls_what_a_signature_is_made_of(superuser: Superuser) -> None:
    callers = superuser.execute(
        "SELECT proname FROM pg_proc WHERE proname = ANY (%s) AND has_function_privilege(%s, oid, 'EXECUTE')",
        ([*owner_functions(), "sign_receipt"], APP_ROLE),
    )
    assert callers.fetchall() == [("sign_receipt",)]
    assert "ed25519_sign" in owner_functions()
