"""Adds the events of the schedules of each tenant: added, claimed, ended. No event is
changed.
"""

from alembic import op

from refold.cluster.schema import run_script

revision = "0008"
down_revision = "0007"

_SCHEDULES_SQL = """
create table refold.schedule_event(
  tenant text not null default refold.tenant(),
  number bigint not null,          -- from 1, without a gap
  change text not null,            -- the id that its process chose, to find it again
  kind text not null,
  event bytea not null,            -- JSON
  happened timestamptz not null default clock_timestamp(),
  primary key (tenant, number)
);
alter table refold.schedule_event enable row level security;
alter table refold.schedule_event force row level security;
create policy own_tenant on refold.schedule_event using (tenant = refold.tenant())
  with check (tenant = refold.tenant());

do $$
begin
  if exists (select from pg_roles where rolname = 'refold_worker') then
    grant select, insert on refold.schedule_event to refold_worker, refold_web;
  end if;
end $$;
"""


def upgrade() -> None:
    run_script(op.get_bind(), _SCHEDULES_SQL)
