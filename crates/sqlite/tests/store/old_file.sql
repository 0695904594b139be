-- A file as a version of this program without documents made it: one live lease, of the boot `boot-1`.
PRAGMA journal_mode = WAL;
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    name           TEXT PRIMARY KEY,
    holder         TEXT NOT NULL,
    class          TEXT NOT NULL,
    owner          TEXT NOT NULL,     -- hash of the token
    fence          INTEGER NOT NULL,
    granted_ns     INTEGER NOT NULL,  -- boot clock
    expires_ns     INTEGER NOT NULL,  -- boot clock
    granted_unix_ms INTEGER NOT NULL, -- wall clock, for people: nothing is decided by it
    expires_unix_ms INTEGER NOT NULL  -- wall clock, for people: nothing is decided by it
) STRICT, WITHOUT ROWID;

CREATE TABLE waiters (
    place      INTEGER PRIMARY KEY,   -- the order in which they are served
    name       TEXT NOT NULL,
    holder     TEXT NOT NULL,
    class      TEXT NOT NULL,
    owner      TEXT NOT NULL,         -- hash of the token
    address    TEXT,                  -- the waiter's socket in the wake folder, if it has one
    floor      INTEGER NOT NULL,      -- its grant's fence must be above this
    expires_ns INTEGER NOT NULL,      -- boot clock
    UNIQUE (name, owner)
) STRICT;
CREATE INDEX waiters_by_place ON waiters (name, place);
CREATE INDEX waiters_by_expiry ON waiters (expires_ns);

CREATE TABLE tombstones (
    owner      TEXT NOT NULL,         -- hash of the token that must not be granted any more
    name       TEXT NOT NULL,
    expires_ns INTEGER NOT NULL,      -- boot clock
    PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstones_by_expiry ON tombstones (expires_ns);

CREATE TABLE fences (
    slot INTEGER PRIMARY KEY,         -- hash of the name
    last INTEGER NOT NULL             -- the highest fence issued; only grows
) STRICT;

CREATE VIEW locks AS
    SELECT name, holder, class, fence,
           datetime(granted_unix_ms / 1000, 'unixepoch') AS granted_utc,
           expires_unix_ms - CAST(unixepoch('subsec') * 1000 AS INTEGER) AS remaining_ms,
           (SELECT count(*) FROM waiters WHERE waiters.name = leases.name) AS waiting
    FROM leases
    WHERE expires_unix_ms > unixepoch('subsec') * 1000
    ORDER BY name;

PRAGMA application_id = 0x4c484c44;
PRAGMA user_version = 1;
INSERT INTO meta VALUES ('boot', 'boot-1');
INSERT INTO leases VALUES ('job', 'old-program', 'special', '00', 1800000000000000, 3600000000000, 3660000000000,
    1800000000000, 1800000060000);
INSERT INTO fences VALUES (1, 1800000000000000);
