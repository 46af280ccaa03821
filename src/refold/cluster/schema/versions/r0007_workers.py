"""Adds a row for each worker: how many sessions it has, and whether it must drain."""

from alembic import op

from refold.cluster.schema import run_script

revision = "0007"
down_revision = "0006"

_WORKERS_SQL = """
create table refold.worker(
  tenant text not null default refold.tenant(),
  id text not null,
  place text not null,             -- its process and machine, for people
  sessions int not null default 0,
  is_draining boolean not null default false,
  seen timestamptz not null default clock_timestamp(),
  primary key (tenant, id)
);
alter table refold.worker enable row level security;
alter table refold.worker force row level security;
create policy own_tenant on refold.worker using (tenant = refold.tenant())
  with check (tenant = refold.tenant());

do $$
begin
  if exists (select from pg_roles where rolname = 'refold_worker') then
    grant select, insert, update, delete on refold.worker to refold_worker;
  end if;
end $$;
"""


def upgrade() -> None:
    run_script(op.get_bind(), _WORKERS_SQL)
