"""Checks for `refold cluster check` whether logins of a database may do more than refold needs.

Row-level security keeps tenants apart, and the rights of two roles keep web nodes from
writing. One statement of an administrator, or a copy of the tables, can remove both.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from refold.cluster.database import Connection, Database

_WELL_KNOWN_PASSWORDS = frozenset(
    {"", "admin", "change-me", "changeme", "password", "postgres", "refold", "secret"}
)
_OWN_ROLE_SQL = """
select rolsuper or rolbypassrls as sees_all, current_user as name,
  (select count(*) = 2 from pg_roles where rolname in ('refold_worker', 'refold_web')) as has_roles
from pg_roles where rolname = current_user
"""
# `words` is read by a function that compares the tenant itself.
_OPEN_TABLES_SQL = """
select relname from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant' and not a.attisdropped
where relnamespace = 'refold'::regnamespace and relkind = 'r'
  and not (relrowsecurity and (relforcerowsecurity or relname = 'words'))
order by relname
"""
_WEB_RIGHTS_SQL = """
select rolname, rolbypassrls, what from pg_roles r
cross join lateral (
  select 'write lines of journals' where has_table_privilege(r.oid, 'refold.line', 'insert, update, delete')
    or has_function_privilege(r.oid,
      'refold.append_lines(text, bigint, bigint, bigint, text, bytea[])', 'execute')
  union all select 'change journals' where has_table_privilege(r.oid, 'refold.journal', 'insert, delete')
  union all select 'write blobs' where has_table_privilege(r.oid, 'refold.blob', 'insert, update, delete')
  union all select 'read sealed secrets' where has_table_privilege(r.oid, 'refold.secret', 'select')
  union all select 'change the audit' where has_table_privilege(r.oid, 'refold.audit', 'update, delete')
  union all select 'read the rows of every tenant at once' where r.rolbypassrls
) rights(what)
where not rolsuper and (rolname = 'refold_web' or rolcanlogin
  and pg_has_role(r.oid, 'refold_web', 'usage'))
order by rolname, what
"""


def find_excess_rights(database: Database, url: str) -> Sequence[str]:
    """Return a sentence for each unsafe right of the logins and tables.

    `url` is the address of the database, with the password.
    """
    return [*database.call(_list_problems), *_password_problems(url)]


async def _list_problems(db: Connection) -> Sequence[str]:
    """Return a sentence for each unsafe right of this login, of the tables, and of web
    nodes.
    """
    role: Any = await db.fetchrow(_OWN_ROLE_SQL)
    problems = list[str]()
    if role["sees_all"]:
        problems.append(
            f"{role['name']!r} may read the rows of every tenant: use a login of the "
            "role refold_worker"
        )
    for row in await db.fetch(_OPEN_TABLES_SQL):
        problems.append(
            f"the table refold.{row['relname']} has no forced row-level security, so tenants can see "
            f"each other in it: alter table refold.{row['relname']} enable row level security, force row "
            "level security"
        )
    if not role["has_roles"]:
        problems.append(
            "the roles refold_worker and refold_web do not exist: run `refold cluster "
            "init` as a role that may create roles"
        )
        return problems
    for row in await db.fetch(_WEB_RIGHTS_SQL):
        problems.append(
            f"{row['rolname']!r} is a login of web nodes and may {row['what']}: revoke that right, or "
            "give workers a login of their own"
        )
    return problems


def _password_problems(url: str) -> Sequence[str]:
    """Return a sentence if the password in the URL is well known or the name of its user;
    else ().
    """
    parts = urlsplit(url)
    if parts.password is None:
        return ()
    user, password = unquote(parts.username or ""), unquote(parts.password)
    if password == user or password in _WELL_KNOWN_PASSWORDS:
        return (
            f"the password of {parts.username!r} is one that everybody tries first: alter role "
            f"{parts.username} password '…'",
        )
    return ()
