-- The backend's whole schema, in the one mutable migration (ARC-006).
-- Domain tables: envelopes, topic_watermark, identifier_association; one allocation boundary;
-- push registrations (spec 005). Nothing here is written by any process but the backend.

-- One global order of allocation. CACHE 1 and NO CYCLE are what the closed boundary rests on (ARC-040).
CREATE SEQUENCE envelope_sequence AS bigint MINVALUE 1 START WITH 1 CACHE 1 NO CYCLE;

CREATE TABLE envelopes (
    sequence_id           bigint  NOT NULL PRIMARY KEY CHECK (sequence_id > 0),
    topic                 bytea   NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 128),
    -- Start of the storing transaction on the primary, Unix nanoseconds (ARC-035).
    server_ns             bigint  NOT NULL CHECK (server_ns >= 0),
    -- First nanosecond at which deletion is allowed; null is never (ARC-025).
    expiry_ns             bigint  CHECK (expiry_ns > server_ns),
    -- SHA-256 of payload (API-211).
    message_hash          bytea   NOT NULL CHECK (octet_length(message_hash) = 32),
    is_commit_or_proposal boolean NOT NULL,
    push_eligible         boolean NOT NULL,
    sender_hmac           bytea   CHECK (octet_length(sender_hmac) = 32),
    -- Canonical encoding of the client envelope: what a response carries, byte for byte.
    payload               bytea   NOT NULL
);

-- Payloads are ciphertext: compressing them costs time and gains nothing, and an external value
-- tells its length without being read.
ALTER TABLE envelopes ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE INDEX envelopes_topic_sequence_id ON envelopes (topic, sequence_id);
CREATE UNIQUE INDEX envelopes_topic_message_hash ON envelopes (topic, message_hash);
CREATE INDEX envelopes_push_eligible ON envelopes (sequence_id) WHERE push_eligible;

-- Greatest committed sequence id of each topic, moved by the transaction that inserts (ARC-021).
CREATE TABLE topic_watermark (
    topic            bytea  NOT NULL PRIMARY KEY,
    last_sequence_id bigint NOT NULL CHECK (last_sequence_id > 0)
);

-- Which inbox an external identifier belongs to; a projection of identity updates (ARC-022). A row is the
-- last change of one identifier in one inbox; null in revocation_sequence_id is active. Identifiers are
-- hex and compared as bytes, so that no update of an operating system's collations touches the indexes.
CREATE TABLE identifier_association (
    identifier              text     NOT NULL COLLATE "C",
    identifier_kind         smallint NOT NULL,
    inbox_id                bytea    NOT NULL CHECK (octet_length(inbox_id) = 32),
    association_sequence_id bigint   NOT NULL,
    revocation_sequence_id  bigint,
    PRIMARY KEY (identifier, identifier_kind, inbox_id)
);

CREATE INDEX identifier_association_active
    ON identifier_association (identifier, identifier_kind, association_sequence_id DESC)
    WHERE revocation_sequence_id IS NULL;

-- Every sequence id at or below closed_sequence_id is settled: stored and visible, or never to be
-- stored (ARC-038, ARC-039). Replicated like any row, so a replica proves the same.
CREATE TABLE allocation_boundary (
    singleton          boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (singleton),
    closed_sequence_id bigint  NOT NULL CHECK (closed_sequence_id >= 0)
);
INSERT INTO allocation_boundary (closed_sequence_id) VALUES (0);

-- Push registrations (spec 005, section 4.3).
CREATE TABLE push_recipient (
    recipient_id bytea    NOT NULL PRIMARY KEY CHECK (octet_length(recipient_id) = 32),
    secret_hash  bytea    NOT NULL,
    channel      smallint NOT NULL,
    -- Device token, or webhook URL.
    delivery     text     NOT NULL,
    signing_key  bytea,
    topic_count  integer  NOT NULL CHECK (topic_count >= 0),
    renewed_ns   bigint   NOT NULL
);

CREATE INDEX push_recipient_renewed_ns ON push_recipient (renewed_ns);

CREATE TABLE push_subscription (
    recipient_id      bytea   NOT NULL REFERENCES push_recipient ON DELETE CASCADE,
    topic             bytea   NOT NULL,
    since_sequence_id bigint  NOT NULL,
    -- 30-day epoch of hmac_key_0; the following keys are for the epochs after it.
    hmac_epoch_base   bigint,
    hmac_key_0        bytea   CHECK (octet_length(hmac_key_0) = 42),
    hmac_key_1        bytea   CHECK (octet_length(hmac_key_1) = 42),
    hmac_key_2        bytea   CHECK (octet_length(hmac_key_2) = 42),
    include_commits   boolean NOT NULL,
    PRIMARY KEY (recipient_id, topic)
);

CREATE INDEX push_subscription_topic ON push_subscription (topic);

CREATE TABLE push_cursor (
    singleton   boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (singleton),
    sequence_id bigint  NOT NULL CHECK (sequence_id >= 0)
);
INSERT INTO push_cursor (sequence_id) VALUES (0);
