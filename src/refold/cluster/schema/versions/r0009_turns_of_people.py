"""Lets people take turns in the queue: the first session of one person need not wait for
all sessions of another.

The priority of a job is the negative number of its turn: one more than the last turn of its
person, and than the turns that run. Procrastinate takes the highest priority first, and of
equal ones the oldest job.
"""

from alembic import op

from refold.cluster.schema import run_script

revision = "0009"
down_revision = "0008"

_TURNS_SQL = """
-- A short name for the person who gave the newest order of the session.
create function refold.newest_person(name text) returns text
language sql stable security definer set search_path = refold, pg_temp as $$
  select md5(coalesce((select person from placed_order where tenant = tenant()
    and session = name order by number desc limit 1), ''))
$$;

create function refold.next_turn(who text) returns int
language sql stable security definer set search_path = refold, pg_temp as $$
  select -1 - greatest(0,
    (select max(-priority) from procrastinate_jobs where queue_name = queue()
      and status in ('todo', 'doing') and args->>'by' = who),
    coalesce(
      (select max(-priority) from procrastinate_jobs where queue_name = queue()
        and status = 'doing'),
      (select min(-priority) - 1 from procrastinate_jobs where queue_name = queue()
        and status = 'todo')))
$$;

create or replace function refold.wake(name text) returns void
language plpgsql security definer set search_path = refold, pg_temp as $$
declare own text := queue_lock(name); who text := newest_person(name);
begin
  perform pg_advisory_xact_lock(lock_key('wake ' || own));
  if not exists (select from procrastinate_jobs where queueing_lock = own and status = 'todo')
  then
    perform raise_numbers(name);
    perform procrastinate_defer_jobs_v1(array[row(queue(), 'run', next_turn(who), own, own,
      jsonb_build_object('session', name, 'by', who), null)::procrastinate_job_to_defer_v1]);
  end if;
  perform pg_notify(channel('wake'), name);
end $$;

revoke all on function refold.newest_person, refold.next_turn from public;

do $$
begin
  if exists (select from pg_roles where rolname = 'refold_worker') then
    grant execute on function refold.newest_person to refold_worker, refold_web;
  end if;
end $$;
"""


def upgrade() -> None:
    run_script(op.get_bind(), _TURNS_SQL)
