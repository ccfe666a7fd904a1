//! What ends a start that is under way.

use std::future::{pending, ready};
use std::sync::Arc;

use futures::future::{BoxFuture, join};
use tokio::sync::Notify;
use xmtp_server::config::ConfigErrors;
use xmtp_server::subsystem::{Configure, StartStep, Starting, Subsystem, SubsystemError};
use xmtp_server::{Server, StartError};

use crate::harness::{Backend, configure_with, within};
use crate::leaks::no_sessions;
use crate::streams::LockedTable;

/// A subsystem with a task that fails when it is told to, as keys do that go stale.
struct Failing {
    fails: Arc<Notify>,
    /// Is told when the task is there.
    attached: Arc<Notify>,
}

/// A subsystem whose step never ends.
struct Hanging;

impl Subsystem for Failing {
    fn name(&self) -> &'static str {
        "failing-of-a-test"
    }

    fn configure(&mut self, context: &mut Configure<'_>) -> Result<(), ConfigErrors> {
        context.start_step(Self {
            fails: self.fails.clone(),
            attached: self.attached.clone(),
        });
        Ok(())
    }
}

impl StartStep for Failing {
    fn word(&self) -> &'static str {
        "failing-of-a-test"
    }

    fn run<'a>(
        self: Box<Self>,
        context: &'a mut Starting<'_>,
    ) -> BoxFuture<'a, Result<(), SubsystemError>> {
        context.task(async move {
            self.attached.notify_one();
            self.fails.notified().await;
            Err("gone stale".into())
        });
        Box::pin(ready(Ok(())))
    }
}

impl Subsystem for Hanging {
    fn name(&self) -> &'static str {
        "hanging-of-a-test"
    }

    fn configure(&mut self, context: &mut Configure<'_>) -> Result<(), ConfigErrors> {
        context.start_step(Self);
        Ok(())
    }
}

impl StartStep for Hanging {
    fn word(&self) -> &'static str {
        "hanging-of-a-test"
    }

    fn run<'a>(
        self: Box<Self>,
        _: &'a mut Starting<'_>,
    ) -> BoxFuture<'a, Result<(), SubsystemError>> {
        Box::pin(pending())
    }
}

/// The server does not start, for what the task says.
async fn ends(server: Server) {
    match within(server.start()).await {
        Err(StartError::Subsystem(error)) => assert_eq!(error.to_string(), "gone stale"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it has started"),
    }
}

#[tokio::test]
async fn auth_019_a_subsystem_that_fails_while_the_server_starts_ends_the_start() {
    let database = Backend::start().await.stop().await;
    let (fails, attached) = (Arc::<Notify>::default(), Arc::<Notify>::default());
    let failing = || {
        Box::new(Failing {
            fails: fails.clone(),
            attached: attached.clone(),
        })
    };
    let configured = |subsystems: &mut [Box<dyn Subsystem>]| {
        configure_with(&database, "", subsystems).expect("the document is valid")
    };
    // While another subsystem does what it has to do first.
    let server = configured(&mut [failing(), Box::new(Hanging)]);
    join(ends(server), async {
        attached.notified().await;
        fails.notify_one();
    })
    .await;
    // While the database is waited for, for as long as somebody migrates it.
    let mut held = LockedTable::new(&database, "_sqlx_migrations").await;
    let server = configured(&mut [failing()]);
    join(ends(server), async {
        attached.notified().await;
        held.blocks(1).await;
        fails.notify_one();
    })
    .await;
    held.unlock().await;
    no_sessions(&database).await;
}
