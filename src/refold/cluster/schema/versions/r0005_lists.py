"""Adds columns by which lists find cards, and an index for each kind of list.

The first query, or `refold sessions reindex`, makes the cards from the lines again.
"""

from alembic import op

from refold.cluster.schema import run_script

revision = "0005"
down_revision = "0004"

_LISTS_SQL = """
truncate refold.card, refold.words;
alter table refold.journal no force row level security;
update refold.journal set indexed = 0;
alter table refold.journal force row level security;

-- It may be more than 'lines' after the server lost what it had not flushed.
drop index refold.journal_unindexed;
create index journal_unindexed on refold.journal(tenant, changed desc) where indexed <> lines;

drop index refold.journal_by_time;
create index journal_by_time on refold.journal(tenant, changed desc, session desc)
  where lines > 0 and session = root;

alter table refold.card
  add column changed timestamptz not null,     -- of the session
  add column root text not null generated always as (split_part(session, '/', 1)) stored,
  add column shelf smallint,                   -- `card_filter.Shelf`; null: a subagent
  add column directory text not null,
  add column name text not null,               -- without case
  add column tags text[] not null,             -- other than those of shelves
  add column schedule int not null,
  add column is_open boolean not null,
  add column asks boolean not null;            -- and is open

create index card_by_shelf on refold.card(tenant, shelf, changed desc, session desc);
create index card_by_directory
  on refold.card(tenant, directory, shelf, changed desc, session desc) where shelf is not null;
create index card_tagged on refold.card(tenant, shelf, changed desc, session desc)
  where tags <> '{}';
create index card_open on refold.card(tenant, shelf, changed desc, session desc) where is_open;
create index card_asking on refold.card(tenant, root) where asks;
create index card_by_id on refold.card(tenant, session collate "C") where shelf is not null;
create index card_by_name on refold.card(tenant, name collate "C")
  where name <> '' and shelf is not null;
create index card_of_schedule
  on refold.card(tenant, schedule, shelf, changed desc, session desc) where schedule <> 0;

-- Of the runs of a schedule, only the newest is on the shelf 5, and the others on 6.
create function refold.show_newest_run(number int) returns void
language sql security invoker set search_path = refold, pg_temp as $$
  with newest as (
    select session, shelf from (
      (select session, shelf, changed from card where tenant = tenant() and schedule = number
        and schedule <> 0 and shelf = 5 order by changed desc, session desc limit 1)
      union all
      (select session, shelf, changed from card where tenant = tenant() and schedule = number
        and schedule <> 0 and shelf = 6 order by changed desc, session desc limit 1)
    ) runs order by changed desc, session desc limit 1
  )
  update card c set shelf = case when c.session = newest.session then 5 else 6 end from newest
    where c.tenant = tenant() and c.schedule = number and c.schedule <> 0
      and (c.shelf = 5 and c.session <> newest.session
        or newest.shelf = 6 and c.session = newest.session)
$$;
revoke all on function refold.show_newest_run from public;

do $$
begin
  if exists (select from pg_roles where rolname = 'refold_worker') then
    grant execute on function refold.show_newest_run to refold_worker, refold_web;
  end if;
end $$;
"""


def upgrade() -> None:
    run_script(op.get_bind(), _LISTS_SQL)
