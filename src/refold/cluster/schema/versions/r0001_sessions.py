"""Adds the tables of sessions (lines, blobs, cards, words), two roles, and row-level
security.
"""

from alembic import op

from refold.cluster.schema import run_script

revision = "0001"
down_revision = None

_TABLES_SQL = """
create function refold.tenant() returns text language sql stable
  as $$ select current_setting('refold.tenant') $$;

create function refold.lock_key(name text) returns bigint language sql immutable
  as $$ select hashtextextended(name, 0) $$;

create table refold.journal(
  tenant text not null default refold.tenant(),
  session text not null,           -- that of a subagent is ROOT/child-1
  root text not null generated always as (split_part(session, '/', 1)) stored,
  epoch bigint not null default 0,
  claim bigint not null default 0,
  holder text not null default '', -- the process that leased it last, as JSON
  lines bigint not null default 0,
  head_seq bigint not null default 0,
  head_hash text not null default '',
  indexed bigint not null default 0, -- lines that its card and words reflect
  changed timestamptz not null default clock_timestamp(),
  primary key (tenant, session)
);
create index journal_by_root on refold.journal(tenant, root);
create index journal_by_time on refold.journal(tenant, changed desc) where lines > 0;
create index journal_unindexed on refold.journal(tenant, changed desc) where indexed < lines;

create table refold.line(
  tenant text not null default refold.tenant(),
  session text not null,
  seq bigint not null,
  line bytea not null,
  primary key (tenant, session, seq),
  foreign key (tenant, session) references refold.journal on delete cascade
);

-- A blob may be there before the first line of its session.
create table refold.blob(
  tenant text not null default refold.tenant(),
  session text not null,
  name text not null,              -- sha256 of the content, in hex
  content bytea not null,
  primary key (tenant, session, name)
);

create table refold.card(
  tenant text not null default refold.tenant(),
  session text not null,
  hash text not null default '',   -- of the last line that it reflects
  card bytea not null,             -- JSON
  primary key (tenant, session),
  foreign key (tenant, session) references refold.journal on delete cascade
);

create table refold.words(
  tenant text not null default refold.tenant(),
  session text not null,
  seq bigint not null,
  who text not null,
  text text not null,
  vector tsvector not null,
  primary key (tenant, session, seq),
  foreign key (tenant, session) references refold.journal on delete cascade
);
create index words_by_vector on refold.words using gin(vector);
"""

# The only way to write lines. 0: written; 1: a later writer has the session; 2: other lines are there.
_APPEND_SQL = """
create function refold.append_lines(
  name text, writer bigint, expect bigint, last_seq bigint, last_hash text, added bytea[]
) returns int language plpgsql security definer set search_path = refold, pg_temp as $$
declare now_there journal;
begin
  -- Written, not yet on the disk: a later commit that waits keeps all before it.
  perform set_config('synchronous_commit', 'off', true);
  update journal set lines = lines + cardinality(added), head_seq = last_seq,
    head_hash = last_hash, changed = clock_timestamp()
    where tenant = tenant() and session = name and epoch = writer and lines = expect;
  if not found then
    select * into now_there from journal where tenant = tenant() and session = name;
    return case
      when now_there.epoch is distinct from writer then 1
      -- Sent again after a lost connection.
      when now_there.lines = expect + cardinality(added) and now_there.head_hash = last_hash then 0
      else 2 end;
  end if;
  insert into line(session, seq, line)
    select name, expect + position, content from unnest(added) with ordinality t(content, position);
  return 0;
end $$;
"""

# No row-level security before the index of words: its operator is not leakproof, so it would not be used.
_SEARCH_SQL = """
create function refold.search_words(wanted tsquery, most int)
returns table(session text, seq bigint) language sql stable security definer
set search_path = refold, pg_temp as $$
  select w.session, w.seq from words w
  where w.tenant = refold.tenant() and w.vector @@ wanted
  order by ts_rank(w.vector, wanted) desc, w.session desc, w.seq desc limit most
$$;
"""

_SECURITY_SQL = """
do $$
declare name text;
begin
  foreach name in array array['journal', 'line', 'blob', 'card', 'words'] loop
    execute format('alter table refold.%I enable row level security', name);
    if name <> 'words' then  -- `search_words` reads it as its owner, for one tenant
      execute format('alter table refold.%I force row level security', name);
    end if;
    execute format('create policy own_tenant on refold.%I using (tenant = refold.tenant()) '
      'with check (tenant = refold.tenant())', name);
  end loop;
end $$;

revoke all on function refold.append_lines, refold.search_words from public;

-- A role belongs to all databases of a server, and may exist; and not every owner may create one.
do $$
declare name text;
begin
  foreach name in array array['refold_worker', 'refold_web'] loop
    if not exists (select from pg_roles where rolname = name) then
      execute format('create role %I nologin', name);
    end if;
  end loop;
exception when insufficient_privilege then
  raise notice 'the roles refold_worker and refold_web were not created';
end $$;

do $$
begin
  if exists (select from pg_roles where rolname = 'refold_worker') then
    grant usage on schema refold to refold_worker, refold_web;
    grant select on all tables in schema refold to refold_worker, refold_web;
    grant insert, delete on refold.journal to refold_worker;
    grant update (epoch, claim, holder, indexed, changed) on refold.journal to refold_worker;
    grant insert, delete on refold.blob to refold_worker;
    grant insert, update, delete on refold.card, refold.words to refold_worker, refold_web;
    grant update (indexed) on refold.journal to refold_web;
    grant execute on function refold.append_lines to refold_worker;
    grant execute on function refold.search_words to refold_worker, refold_web;
  end if;
end $$;
"""


def upgrade() -> None:
    for statements in (_TABLES_SQL, _APPEND_SQL, _SEARCH_SQL, _SECURITY_SQL):
        run_script(op.get_bind(), statements)
