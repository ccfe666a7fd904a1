//! The plans of every statement that the workspace runs, at a production's row counts (ARC-020).

use std::path::Path;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tokio::sync::OnceCell;

use crate::fixture::Store;

/// Relations that grow with use: none of them may be read as a whole.
const GROWING: [&str; 3] = ["envelopes", "topic_watermark", "identifier_association"];

/// 200,000 rows: one busy topic has 20,000 of them, 30,000 topics have six each.
const LOAD: &str = r"
    SET synchronous_commit = off;
    INSERT INTO envelopes (sequence_id, topic, server_ns, expiry_ns, message_hash,
                           is_commit_or_proposal, push_eligible, sender_hmac, payload)
    SELECT id, '\x00'::bytea || decode(md5(topic::text), 'hex'), id, NULL, sha256(int8send(id)),
           id % 7 = 0, id % 3 = 0, NULL, decode(repeat(md5(id::text), 10), 'hex')
    FROM generate_series(1, 200000) AS id
    CROSS JOIN LATERAL (SELECT CASE WHEN id % 10 = 0 THEN 0 ELSE 1 + id % 30000 END) AS named (topic);
    SELECT setval('envelope_sequence', 200000);
    INSERT INTO topic_watermark SELECT topic, max(sequence_id) FROM envelopes GROUP BY topic;
    INSERT INTO identifier_association
    SELECT id::text, 1, sha256(int8send(id)), id, NULL FROM generate_series(1, 50000) AS id;
    RESET synchronous_commit;
    VACUUM ANALYZE envelopes, topic_watermark, identifier_association
";

/// A committed description of a checked statement.
struct Statement {
    sql: String,
    /// PostgreSQL's names of the parameter types.
    parameters: Vec<String>,
}

impl Statement {
    fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.sqlx");
        let statements: Vec<Self> = folder
            .read_dir()
            .unwrap()
            .map(|entry| {
                let described = std::fs::read_to_string(entry.unwrap().path()).unwrap();
                Self::parse(&serde_json::from_str(&described).unwrap())
            })
            .collect();
        // An operator who asks how much there is has it counted.
        let counted = [
            include_str!("../../src/condition.rs"),
            include_str!("../../src/inspect.rs"),
            include_str!("../../src/schema.rs"),
        ];
        let (of_operators, statements): (Vec<Self>, Vec<Self>) = statements
            .into_iter()
            .partition(|it| counted.iter().any(|source| source.contains(&it.sql)));
        assert!(!of_operators.is_empty() && !statements.is_empty());
        statements
    }

    fn parse(description: &Value) -> Self {
        let parameters = description["describe"]["parameters"]["Left"]
            .as_array()
            .unwrap()
            .iter()
            .map(|described| {
                let described = described.as_str().expect("a built-in type");
                described.strip_suffix("Array").map_or_else(
                    || described.to_lowercase(),
                    |element| format!("{}[]", element.to_lowercase()),
                )
            })
            .collect();
        Self {
            sql: description["query"].as_str().unwrap().to_owned(),
            parameters,
        }
    }
}

/// How a statement is planned.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Once, for any parameters.
    Generic,
    /// For parameters as known: arrays of this many elements, and limits of this size.
    Custom(usize),
}

/// Literals of the types that the statements take.
struct Parameters {
    /// Stored topics, in hexadecimal.
    topics: Vec<String>,
}

impl Parameters {
    async fn read(connection: &mut PgConnection) -> Self {
        let topics = sqlx::query_scalar(
            "SELECT encode(topic, 'hex') FROM topic_watermark ORDER BY topic LIMIT 1000",
        )
        .fetch_all(connection)
        .await
        .unwrap();
        Self { topics }
    }

    fn literal(&self, name: &str, size: usize) -> String {
        match name.strip_suffix("[]") {
            Some(element) => {
                let elements: Vec<String> = (0..size).map(|n| self.element(element, n)).collect();
                format!("ARRAY[{}]::{name}", elements.join(","))
            }
            None => format!("{}::{name}", self.element(name, size)),
        }
    }

    fn element(&self, name: &str, n: usize) -> String {
        match name {
            "bytea" => format!(r"'\x{}'", self.topics[n % self.topics.len()]),
            "text" => format!("'{n}'"),
            "bool" => "true".to_owned(),
            "int2" | "int4" | "int8" => n.to_string(),
            _ => panic!("a statement takes {name}: say here what to plan it with"),
        }
    }
}

/// One plan, as a tree.
struct Plan(Value);

impl Plan {
    async fn of(
        connection: &mut PgConnection,
        statement: &Statement,
        parameters: &Parameters,
        mode: Mode,
    ) -> Self {
        let (cache_mode, size) = match mode {
            Mode::Generic => ("force_generic_plan", 1),
            Mode::Custom(size) => ("force_custom_plan", size),
        };
        let list = |items: Vec<String>| {
            if items.is_empty() {
                String::new()
            } else {
                format!("({})", items.join(", "))
            }
        };
        let types = list(statement.parameters.clone());
        let arguments = list(
            statement
                .parameters
                .iter()
                .map(|name| parameters.literal(name, size))
                .collect(),
        );
        let explain = format!(
            "SET plan_cache_mode = {cache_mode};
             DEALLOCATE ALL;
             PREPARE planned {types} AS {};
             EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE planned {arguments}",
            statement.sql
        );
        let row = sqlx::raw_sql(AssertSqlSafe(explain))
            .fetch_one(connection)
            .await
            .unwrap();
        Self(serde_json::from_str(row.get_unchecked(0)).unwrap())
    }

    /// Every node of the plan.
    fn nodes(&self) -> Vec<&Value> {
        let mut nodes = Vec::new();
        let mut pending = vec![&self.0[0]["Plan"]];
        while let Some(node) = pending.pop() {
            nodes.push(node);
            pending.extend(node["Plans"].as_array().into_iter().flatten());
        }
        nodes
    }

    /// The nodes under the common table expression of this name, its own scan of the rows included.
    fn subplan(&self, name: &str) -> Self {
        let name = format!("CTE {name}");
        let root = self
            .nodes()
            .into_iter()
            .find(|node| node["Subplan Name"] == name.as_str())
            .unwrap_or_else(|| panic!("the plan has a {name}"));
        Self(serde_json::json!([{ "Plan": root }]))
    }

    /// Every expression that is computed or copied. A scan under a join hands on the stored row as it
    /// lies in its page, which fetches no value.
    fn outputs(&self) -> Vec<&str> {
        self.nodes()
            .into_iter()
            .filter(|node| {
                !(node["Relation Name"].is_string() && node["Parent Relationship"] == "Inner")
            })
            .filter_map(|node| node["Output"].as_array())
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// The first rows of the index, as `max` reads them: no more rows than the limit lets through.
    fn is_limited(&self, scan: &Value) -> bool {
        self.nodes().into_iter().any(|node| {
            node["Node Type"] == "Limit" && node["Plans"][0] == *scan && scan["Filter"].is_null()
        })
    }

    /// What is wrong with the way in which a node reaches a growing relation.
    fn faults(&self) -> Vec<String> {
        self.nodes()
            .into_iter()
            .filter_map(|node| {
                let relation = node["Relation Name"].as_str()?;
                let kind = node["Node Type"].as_str()?;
                let indexed = match kind {
                    // A condition on the index, and no rows read only to be dropped.
                    "Index Scan" | "Index Only Scan" => {
                        (node["Index Cond"].is_string() && node["Filter"].is_null())
                            || self.is_limited(node)
                    }
                    // By the place of a row that this statement has found already.
                    "Tid Scan" | "Bitmap Heap Scan" => node["Filter"].is_null(),
                    // The target of a write: what feeds it is a node of its own.
                    "ModifyTable" => true,
                    _ => false,
                };
                (GROWING.contains(&relation) && !indexed).then(|| format!("{kind} on {relation}"))
            })
            .collect()
    }
}

/// Every plan of every statement.
type Plans = Vec<(Statement, Vec<(Mode, Plan)>)>;

/// The plans, of one load for all tests.
async fn plans() -> &'static Plans {
    static PLANS: OnceCell<Plans> = OnceCell::const_new();
    PLANS.get_or_init(load_and_plan).await
}

async fn load_and_plan() -> Plans {
    let store = Store::create().await;
    let mut connection = store.database.connect().await;
    for statement in LOAD.split(';') {
        sqlx::raw_sql(statement)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    let parameters = Parameters::read(&mut connection).await;
    let mut plans = Vec::new();
    for statement in Statement::all() {
        let mut of_statement = Vec::new();
        for mode in [
            Mode::Generic,
            Mode::Custom(1),
            Mode::Custom(100),
            Mode::Custom(1000),
        ] {
            let plan = Plan::of(&mut connection, &statement, &parameters, mode).await;
            of_statement.push((mode, plan));
        }
        plans.push((statement, of_statement));
    }
    connection.close().await.unwrap();
    plans
}

/// The plans of the one statement whose text holds all of `parts` and none of `others`.
async fn plans_of(parts: &[&str], others: &[&str]) -> &'static [(Mode, Plan)] {
    let found: Vec<_> = plans()
        .await
        .iter()
        .filter(|(statement, _)| {
            parts.iter().all(|part| statement.sql.contains(part))
                && !others.iter().any(|part| statement.sql.contains(part))
        })
        .collect();
    let [(_, plans)] = found[..] else {
        panic!("{} statements match", found.len());
    };
    plans
}

#[tokio::test]
async fn arc_020_every_statement_reaches_growing_tables_through_an_index() {
    let mut faults = Vec::new();
    for (statement, plans) in plans().await {
        for (mode, plan) in plans {
            for fault in plan.faults() {
                faults.push(format!("{fault}, {mode:?}, in:\n{}", statement.sql));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[tokio::test]
async fn arc_061_query_chooses_its_candidates_from_the_index_alone() {
    for (mode, plan) in plans_of(&["has_more"], &[]).await {
        let candidates = plan.subplan("candidate");
        let scans: Vec<&str> = candidates
            .nodes()
            .into_iter()
            .filter(|node| node["Relation Name"] == "envelopes")
            .filter_map(|node| node["Node Type"].as_str())
            .collect();
        assert_eq!(scans, ["Index Only Scan"], "{mode:?}");
        assert!(
            candidates
                .outputs()
                .iter()
                .all(|output| !output.contains("payload")),
            "{mode:?}"
        );
    }
}

#[tokio::test]
async fn arc_063_newest_metadata_loads_no_payload() {
    for (mode, plan) in plans_of(&["topic_watermark", "message_hash"], &["payload"]).await {
        let outputs = plan.outputs();
        assert!(
            outputs.iter().any(|output| output.contains("message_hash")),
            "{mode:?}"
        );
        assert!(
            !outputs.iter().any(|output| output.contains("payload")),
            "{mode:?}: {outputs:?}"
        );
    }
}

#[tokio::test]
async fn arc_087_catch_up_and_tail_take_only_the_length_of_a_candidate_payload() {
    for part in ["after, through, position", "bytes_before"] {
        for (mode, plan) in plans_of(&[part], &[]).await {
            for output in plan.subplan("candidate").outputs() {
                assert!(
                    !output.contains("payload") || output.contains("octet_length("),
                    "{mode:?}: {output}"
                );
            }
        }
    }
}
