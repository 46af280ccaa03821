"""Adds secrets of tenants, and lets the owner of the tables list the names of all tenants.

The secrets are sealed with a key that is not in the database.
"""

from alembic import op

from refold.cluster.schema import run_script

revision = "0006"
down_revision = "0005"

_SECRETS_SQL = """
create table refold.secret(
  tenant text not null default refold.tenant(),
  name text not null,
  sealed bytea not null,           -- bound to tenant and name: see `cluster.sealing`
  changed timestamptz not null default clock_timestamp(),
  primary key (tenant, name)
);
alter table refold.secret enable row level security;
alter table refold.secret force row level security;
create policy own_tenant on refold.secret using (tenant = refold.tenant())
  with check (tenant = refold.tenant());

-- An operator lists the tenants: the owner of the tables sees their names, and no other row of theirs.
do $$
begin
  execute format('create policy every_name on refold.tenant_settings for select to %I using (true)',
    current_user);
end $$;

do $$
begin
  if exists (select from pg_roles where rolname = 'refold_worker') then
    grant select, insert, update, delete on refold.secret to refold_worker;
  end if;
end $$;
"""


def upgrade() -> None:
    run_script(op.get_bind(), _SECRETS_SQL)
