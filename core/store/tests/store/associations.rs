//! The projection of identifiers: later changes stand, whatever comes after them (ARC-022, ARC-065).

use xmtp_protocol::Topic;
use xmtp_protocol::identity::{AssociationChanges, IdentifierKey};
use xmtp_protocol::proto::xmtp::identity::associations::IdentifierKind;
use xmtp_store::InboxId;

use crate::fixture::{Store, envelope, inbox, publish};

/// An account whose address is `digit` repeated.
fn account(digit: char) -> IdentifierKey {
    let text = format!("0x{}", digit.to_string().repeat(40));
    IdentifierKey::from_lookup(&text, IdentifierKind::Ethereum.into())
        .unwrap()
        .unwrap()
}

/// A passkey whose key is `digit` repeated.
fn passkey(digit: char) -> IdentifierKey {
    let text = digit.to_string().repeat(66);
    IdentifierKey::from_lookup(&text, IdentifierKind::Passkey.into())
        .unwrap()
        .unwrap()
}

fn associated<const N: usize>(keys: [IdentifierKey; N]) -> AssociationChanges {
    AssociationChanges {
        associated: keys.into(),
        revoked: Vec::new(),
    }
}

fn revoked<const N: usize>(keys: [IdentifierKey; N]) -> AssociationChanges {
    AssociationChanges {
        associated: Vec::new(),
        revoked: keys.into(),
    }
}

/// Stores an update with these changes under the id `id`. Nothing but the projection remembers what came
/// before it.
async fn store(store: &Store, topic: Topic, id: i64, associations: AssociationChanges) {
    let forget =
        format!("DELETE FROM topic_watermark; SELECT setval('envelope_sequence', {id}, false)");
    store.database.execute(&forget).await;
    let mut update = envelope(topic, format!("update {id}"));
    update.associations = associations;
    publish(&store.primary, &[update]).await.unwrap();
}

/// The numbers of the inboxes that are found.
async fn found(store: &Store, keys: &[IdentifierKey]) -> Vec<Option<u8>> {
    let ids = store.primary.reads().inbox_ids(keys).await.unwrap();
    let number = |id: InboxId| {
        assert_eq!(id, [id[0]; 32]);
        id[0]
    };
    ids.into_iter().map(|id| id.map(number)).collect()
}

#[tokio::test]
async fn arc_065_each_identifier_is_answered_in_its_place() {
    let db = Store::create().await;
    store(&db, inbox(1), 1, associated([account('a'), passkey('b')])).await;
    store(&db, inbox(2), 2, associated([account('c')])).await;
    let keys = [
        passkey('a'),
        account('c'),
        account('a'),
        account('b'),
        passkey('b'),
        account('c'),
    ];
    assert_eq!(
        found(&db, &keys).await,
        [None, Some(2), Some(1), None, Some(1), Some(2)]
    );
    assert_eq!(found(&db, &[]).await, []);
}

#[tokio::test]
async fn arc_022_the_latest_active_association_wins_and_a_revocation_exposes_an_older_one() {
    let db = Store::create().await;
    for (topic, id_of_update, changes, expected) in [
        (inbox(1), 1, associated([account('a')]), Some(1)),
        (inbox(2), 2, associated([account('a')]), Some(2)),
        (inbox(3), 3, associated([account('a')]), Some(3)),
        (inbox(3), 4, revoked([account('a')]), Some(2)),
        (inbox(1), 5, revoked([account('a')]), Some(2)),
        (inbox(2), 6, revoked([account('a')]), None),
        (inbox(1), 7, associated([account('a')]), Some(1)),
        (inbox(3), 8, associated([account('a')]), Some(3)),
        // Associated anew, as when one update removes and adds: its association is the latest.
        (inbox(1), 9, associated([account('a')]), Some(1)),
    ] {
        store(&db, topic, id_of_update, changes).await;
        assert_eq!(
            found(&db, &[account('a')]).await,
            [expected],
            "after {id_of_update}"
        );
    }
}

#[tokio::test]
async fn arc_022_an_earlier_change_undoes_no_later_one() {
    let db = Store::create().await;
    let change = |is_association: bool| {
        if is_association {
            associated([account('a')])
        } else {
            revoked([account('a')])
        }
    };
    // Whatever stood before, the change with the greatest id stands in the end.
    for (inbox_number, ids) in [(1, [10, 20, 30]), (2, [11, 31, 21]), (3, [32, 12, 22])] {
        for (place, id_of_update) in ids.into_iter().enumerate() {
            store(
                &db,
                inbox(inbox_number),
                id_of_update,
                change(place % 2 == 0),
            )
            .await;
        }
    }
    let rows: Vec<(Vec<u8>, i64, Option<i64>)> = sqlx::query_as(
        "SELECT inbox_id, association_sequence_id, revocation_sequence_id
         FROM identifier_association ORDER BY inbox_id",
    )
    .fetch_all(&mut db.database.connect().await)
    .await
    .unwrap();
    assert_eq!(
        rows,
        [
            (vec![1; 32], 30, None),
            (vec![2; 32], 11, Some(31)),
            (vec![3; 32], 32, None),
        ]
    );
    // Not even a revocation of what was never there is undone.
    store(&db, inbox(4), 40, revoked([passkey('a')])).await;
    store(&db, inbox(4), 39, associated([passkey('a')])).await;
    assert_eq!(found(&db, &[passkey('a')]).await, [None]);
}
