"""Allows numbers of claims that are not numbers of jobs, because Temporal may assign sessions.

These numbers are times, and far above those of jobs. If the queue assigns sessions again,
its numbers continue above them.
"""

from alembic import op

from refold.cluster.schema import run_script

revision = "0004"
down_revision = "0003"

_NUMBERS_SQL = """
-- Make the next number of a job higher than that of any claim on the session.
create function refold.raise_numbers(name text) returns void
language plpgsql security definer set search_path = refold, pg_temp as $$
declare
  numbers constant regclass := 'procrastinate_jobs_id_seq';
  last bigint := coalesce(
    (select claim from journal where tenant = tenant() and session = name), 0);
  next bigint := 0;
begin
  if last > 0 then
    next := nextval(numbers);
  end if;
  -- Others draw numbers meanwhile, so only a jump that none of them reaches is safe.
  if last > next + 1000000 then
    perform setval(numbers, last);
  end if;
  while last > next and last <= next + 1000000 loop
    next := nextval(numbers);
  end loop;
end $$;

create or replace function refold.wake(name text) returns void
language plpgsql security definer set search_path = refold, pg_temp as $$
declare own text := queue_lock(name);
begin
  perform pg_advisory_xact_lock(lock_key('wake ' || own));
  if not exists (select from procrastinate_jobs where queueing_lock = own and status = 'todo')
  then
    perform raise_numbers(name);
    perform procrastinate_defer_jobs_v1(array[row(queue(), 'run', 0, own, own,
      jsonb_build_object('session', name), null)::procrastinate_job_to_defer_v1]);
  end if;
  perform pg_notify(channel('wake'), name);
end $$;

revoke all on function refold.raise_numbers from public;
"""


def upgrade() -> None:
    run_script(op.get_bind(), _NUMBERS_SQL)
