"""Adds tenants, their people, the logins and tokens of people, and a record of what people
did.
"""

from alembic import op

from refold.cluster.schema import run_script

revision = "0003"
down_revision = "0002"

_TABLES_SQL = """
create table refold.tenant_settings(
  tenant text primary key default refold.tenant(),
  max_running int,                 -- sessions that workers have at once; null: no limit
  created timestamptz not null default clock_timestamp()
);

create table refold.person(
  tenant text not null default refold.tenant(),
  subject text not null,           -- `sub` of the identity provider
  name text not null default '',
  email text not null default '',
  role text not null default 'member' check (role in ('member', 'admin', 'auditor')),
  locked boolean not null default false,
  created timestamptz not null default clock_timestamp(),
  last_login timestamptz,
  primary key (tenant, subject),
  foreign key (tenant) references refold.tenant_settings on delete cascade
);

create table refold.login(
  tenant text not null default refold.tenant(),
  id text not null,
  hash bytea not null,             -- sha256 of the secret
  subject text not null,
  kind text not null check (kind in ('page', 'token')),
  label text not null default '',
  created timestamptz not null default clock_timestamp(),
  expires timestamptz not null,
  primary key (tenant, id),
  foreign key (tenant, subject) references refold.person on delete cascade
);

-- Rows are added and never changed. They stay when a session is deleted.
create table refold.audit(
  tenant text not null default refold.tenant(),
  number bigint not null generated always as identity,
  happened timestamptz not null default clock_timestamp(),
  actor text not null,             -- a subject; '': an operator
  action text not null,
  session text not null default '',
  detail text not null default '',
  primary key (tenant, number)
);
create index audit_by_actor on refold.audit(tenant, actor, number);

alter table refold.placed_order add column person text not null default '';
"""

_ORDERS_SQL = """
drop function refold.place_order(text, text, bytea);

-- False: the order is there, and settled. The person and the kind of a new one are noted with it.
create function refold.record_order(
  name text, client_key text, content bytea, by_person text, kind text
) returns boolean
language plpgsql security definer set search_path = refold, pg_temp as $$
declare number_placed bigint;
begin
  insert into placed_order(session, key, body, person)
    values(name, client_key, content, by_person)
    on conflict do nothing returning number into number_placed;
  if number_placed is not null and by_person <> '' then
    insert into audit(actor, action, session, detail) values(by_person,
      case client_key when '' then 'begin' else 'order' end, name, kind);
  end if;
  return exists (select from placed_order where tenant = tenant() and session = name
    and key = client_key and outcome is null);
end $$;

create function refold.place_order(
  name text, client_key text, content bytea, by_person text, kind text
) returns void
language plpgsql security definer set search_path = refold, pg_temp as $$
begin
  if record_order(name, client_key, content, by_person, kind) then
    perform wake(name);
  end if;
end $$;

drop function refold.fetch_claim(bigint, bigint[]);

-- A job that this worker has and does not know of comes first: its answer was lost. Without a
-- session: jobs wait, and the tenant has as many sessions at work as it may have.
create function refold.fetch_claim(worker bigint, known bigint[])
returns table(number bigint, session text)
language plpgsql security definer set search_path = refold, pg_temp as $$
declare most int := (select max_running from tenant_settings where tenant = tenant());
begin
  return query select id, args->>'session' from procrastinate_jobs
    where worker_id = worker and status = 'doing' and id <> all(known) order by id limit 1;
  if found then
    return;
  end if;
  if most is not null then
    perform pg_advisory_xact_lock(lock_key('fetch ' || queue()));
    if most <= (select count(*) from procrastinate_jobs
      where queue_name = queue() and status = 'doing') then
      return query select 0::bigint, null::text where exists (select from procrastinate_jobs j
        where queue_name = queue() and status = 'todo' and not exists (
          select from procrastinate_jobs d where d.lock = j.lock and d.status = 'doing'));
      return;
    end if;
  end if;
  return query select id, args->>'session'
    from procrastinate_fetch_job_v2(array[queue()]::varchar[], worker) where id is not null;
end $$;
"""

_SECURITY_SQL = """
do $$
declare name text;
begin
  foreach name in array array['tenant_settings', 'person', 'login', 'audit'] loop
    execute format('alter table refold.%I enable row level security', name);
    execute format('alter table refold.%I force row level security', name);
    execute format('create policy own_tenant on refold.%I using (tenant = refold.tenant()) '
      'with check (tenant = refold.tenant())', name);
  end loop;
end $$;

revoke all on function refold.record_order, refold.place_order(text, text, bytea, text, text),
  refold.fetch_claim(bigint, bigint[]) from public;

do $$
begin
  if exists (select from pg_roles where rolname = 'refold_worker') then
    grant execute on function refold.record_order, refold.place_order(text, text, bytea, text, text)
      to refold_worker, refold_web;
    grant execute on function refold.fetch_claim(bigint, bigint[]) to refold_worker;
    grant select on refold.tenant_settings to refold_worker, refold_web;
    grant select on refold.person, refold.login, refold.audit to refold_web;
    grant insert, update, delete on refold.person to refold_web;
    grant insert, delete on refold.login to refold_web;
    grant insert on refold.audit to refold_web, refold_worker;
  end if;
end $$;
"""


def upgrade() -> None:
    for statements in (_TABLES_SQL, _ORDERS_SQL, _SECURITY_SQL):
        run_script(op.get_bind(), statements)
