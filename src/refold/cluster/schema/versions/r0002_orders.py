"""Adds orders with unique client keys, and the queue of Procrastinate, which assigns sessions.

Procrastinate's functions find their tables by the search path, so each is called by a
function of ours, which sets the path. A job contains only the id of a session. The id of
the job is the number of the claim.
"""

from importlib import import_module
from typing import Any

from alembic import op

from refold.cluster.schema import run_script

revision = "0002"
down_revision = "0001"

_ORDERS_SQL = """
create function refold.channel(kind text) returns text language sql stable
  as $$ select 'refold_' || kind || '_' || md5(refold.tenant()) $$;

create table refold.placed_order(
  tenant text not null default refold.tenant(),
  session text not null,
  key text not null,               -- of the client; '': the start values of a new session
  number bigint not null generated always as identity,
  body bytea,                      -- the order as JSON, until it is settled
  claim bigint,                    -- the last that took it
  outcome bytea,                   -- the result or the error, as JSON
  placed timestamptz not null default clock_timestamp(),
  primary key (tenant, session, key)
);
create index placed_order_open on refold.placed_order(tenant, session, number)
  where outcome is null;
"""

_QUEUE_SQL = """
create function refold.queue() returns text language sql stable
  as $$ select 'refold_' || md5(refold.tenant()) $$;

create function refold.queue_lock(name text) returns text language sql stable
  as $$ select refold.tenant() || ' ' || name $$;

-- Another job for the session, unless one waits; the worker that has the session is notified.
create function refold.wake(name text) returns void
language plpgsql security definer set search_path = refold, pg_temp as $$
declare own text := queue_lock(name);
begin
  perform pg_advisory_xact_lock(lock_key('wake ' || own));
  if not exists (select from procrastinate_jobs where queueing_lock = own and status = 'todo')
  then
    -- Numbers of claims rise, also after those of a process without a queue.
    while exists (select from journal where tenant = tenant() and session = name
      and claim >= nextval('procrastinate_jobs_id_seq')) loop end loop;
    perform procrastinate_defer_jobs_v1(array[row(queue(), 'run', 0, own, own,
      jsonb_build_object('session', name), null)::procrastinate_job_to_defer_v1]);
  end if;
  perform pg_notify(channel('wake'), name);
end $$;

create function refold.place_order(name text, client_key text, content bytea) returns void
language plpgsql security definer set search_path = refold, pg_temp as $$
begin
  insert into placed_order(session, key, body) values(name, client_key, content)
    on conflict do nothing;
  if exists (select from placed_order where tenant = tenant() and session = name
    and key = client_key and outcome is null) then
    perform wake(name);
  end if;
end $$;

-- A wake after this leads to another notification, or to another claim.
create function refold.acknowledge_wakes(name text) returns void
language plpgsql security definer set search_path = refold, pg_temp as $$
begin
  perform pg_advisory_xact_lock(lock_key('wake ' || queue_lock(name)));
  delete from procrastinate_jobs where queueing_lock = queue_lock(name) and status = 'todo';
end $$;

create function refold.is_claimed(name text) returns boolean
language sql stable security definer set search_path = refold, pg_temp as $$
  select exists(select from procrastinate_jobs where lock = queue_lock(name) and status = 'doing')
$$;

create function refold.is_locked(name text) returns boolean
language sql stable security definer set search_path = refold, pg_temp as $$
  select exists(select from pg_locks, (select lock_key(queue_lock(name)) as key) own
    where locktype = 'advisory' and objsubid = 1
      and database = (select oid from pg_database where datname = current_database())
      and (classid::bigint << 32 | objid::bigint) = own.key)
$$;

create function refold.register_worker() returns bigint
language sql security definer set search_path = refold, pg_temp as $$
  select worker_id from procrastinate_register_worker_v1()
$$;

create function refold.unregister_worker(worker bigint) returns void
language sql security definer set search_path = refold, pg_temp as $$
  select procrastinate_unregister_worker_v1(worker)
$$;

-- False: the worker was declared dead.
create function refold.beat(worker bigint) returns boolean
language plpgsql security definer set search_path = refold, pg_temp as $$
begin
  perform procrastinate_update_heartbeat_v1(worker);
  return exists (select from procrastinate_workers where id = worker);
end $$;

-- A job that this worker has and does not know of comes first: its answer was lost.
create function refold.fetch_claim(worker bigint, known bigint[])
returns table(number bigint, session text)
language plpgsql security definer set search_path = refold, pg_temp as $$
begin
  return query select id, args->>'session' from procrastinate_jobs
    where worker_id = worker and status = 'doing' and id <> all(known) order by id limit 1;
  if not found then
    return query select id, args->>'session'
      from procrastinate_fetch_job_v2(array[queue()]::varchar[], worker) where id is not null;
  end if;
end $$;

create function refold.end_claim(number bigint) returns void
language plpgsql security definer set search_path = refold, pg_temp as $$
declare own text;
begin
  select lock into own from procrastinate_jobs
    where id = number and status = 'doing' and queue_name = queue() for update;
  if found then  -- otherwise another worker has taken the session over
    perform procrastinate_finish_job_v1(number, 'succeeded', true);
    perform pg_notify(channel('wake'), '');  -- a job of the session may wait
  end if;
end $$;

-- Give the sessions of workers without a heartbeat to others, and those with orders but without a
-- job. Retrying the jobs would collide with the ones that wait.
create function refold.take_over(seconds double precision) returns bigint
language plpgsql security definer set search_path = refold, pg_temp as $$
declare job record; name text; total bigint := 0;
begin
  for job in
    select j.id, j.args->>'session' as session from procrastinate_jobs j
      left join procrastinate_workers w on w.id = j.worker_id
      where j.status = 'doing' and j.queue_name = queue()
        and (w.id is null or w.last_heartbeat < now() - make_interval(secs => seconds))
      order by j.id for update of j skip locked
  loop
    perform procrastinate_finish_job_v1(job.id, 'failed', true);
    perform wake(job.session);
    total := total + 1;
  end loop;
  for name in
    select distinct o.session from placed_order o
      where o.tenant = tenant() and o.outcome is null
        and o.placed < now() - make_interval(secs => seconds)
        and not exists (select from procrastinate_jobs j where j.lock = queue_lock(o.session)
          and j.status in ('todo', 'doing'))
      order by o.session
  loop
    perform wake(name);
  end loop;
  perform procrastinate_prune_stalled_workers_v1(seconds);
  return total;
end $$;
"""

_SECURITY_SQL = """
alter table refold.placed_order enable row level security;
alter table refold.placed_order force row level security;
create policy own_tenant on refold.placed_order using (tenant = refold.tenant())
  with check (tenant = refold.tenant());
revoke all on all functions in schema refold from public;
grant execute on function refold.tenant, refold.lock_key, refold.channel to public;

do $$
begin
  if exists (select from pg_roles where rolname = 'refold_worker') then
    grant select on refold.placed_order to refold_worker, refold_web;
    grant update (body, claim, outcome), delete on refold.placed_order to refold_worker;
    grant execute on function refold.place_order, refold.wake, refold.is_claimed,
      refold.is_locked
      to refold_worker, refold_web;
    grant execute on function refold.acknowledge_wakes, refold.register_worker, refold.unregister_worker,
      refold.beat, refold.fetch_claim, refold.end_claim, refold.take_over to refold_worker;
    grant execute on function refold.append_lines to refold_worker;
    grant execute on function refold.search_words to refold_worker, refold_web;
  end if;
end $$;
"""


def upgrade() -> None:
    queue: Any = import_module("procrastinate.schema")  # an extra, of which this is used
    tables = queue.SchemaManager.get_schema()
    path = "set local search_path = refold, pg_catalog;\n"
    for statements in (_ORDERS_SQL, path + tables, _QUEUE_SQL, _SECURITY_SQL):
        run_script(op.get_bind(), statements)
    run_script(op.get_bind(), "set local search_path to default;")
