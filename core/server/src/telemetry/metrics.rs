//! The recorder of metrics (OPS-016).

use std::time::Duration;

use metrics_exporter_prometheus::{
    BuildError, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::catalogue::{BUCKETS, Catalogue};
use super::families::{INFO, READY, VERSION};

/// How often samples are folded.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The recorder cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// It cannot be built.
    #[error("the metrics recorder cannot be built")]
    Build(#[from] BuildError),
    /// There is one already.
    #[error("a metrics recorder is already installed")]
    Installed,
}

/// What was recorded, in the words of a catalogue. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
    catalogue: std::sync::Arc<Catalogue>,
}

impl Metrics {
    /// Installs the recorder of the process.
    ///
    /// # Errors
    /// [`MetricsError`] on a second call.
    pub fn install(catalogue: Catalogue) -> Result<Self, MetricsError> {
        let (metrics, recorder) = Self::new(catalogue)?;
        metrics::set_global_recorder(recorder).map_err(|_| MetricsError::Installed)?;
        metrics.begin();
        Ok(metrics)
    }

    /// A recorder that is not installed, and what will be recorded in it once it is and after
    /// [`Self::begin`].
    ///
    /// # Errors
    /// [`MetricsError::Build`].
    pub fn new(catalogue: Catalogue) -> Result<(Self, PrometheusRecorder), MetricsError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets(&BUCKETS)?
            .build_recorder();
        let metrics = Self {
            handle: recorder.handle(),
            catalogue: catalogue.into(),
        };
        Ok((metrics, recorder))
    }

    /// Describes the catalogue, and says that the process is not ready and of which version it is
    /// (ARC-098).
    pub fn begin(&self) {
        self.catalogue.register();
        READY.set(&[], 0.0);
        INFO.set(&[VERSION], 1.0);
    }

    /// The Prometheus text format.
    pub fn render(&self) -> String {
        self.catalogue.render(&self.handle)
    }

    /// Folds histogram samples that nobody has scraped into their buckets, until `stop`: without a scraper
    /// they would pile up.
    pub(crate) async fn upkeep(self, stop: CancellationToken) {
        while stop
            .run_until_cancelled(sleep(UPKEEP_INTERVAL))
            .await
            .is_some()
        {
            self.handle.run_upkeep();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::super::families::HANDLING;
    use super::*;

    /// Resident memory, bytes.
    fn memory() -> usize {
        let status = fs::read_to_string("/proc/self/status").expect("the system tells");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kilobytes: Option<usize> = kilobytes.and_then(|text| text.parse().ok());
        kilobytes.expect("it is told in kB") * 1024
    }

    // Time is paused: it passes as soon as every task sleeps.
    #[tokio::test(start_paused = true)]
    async fn ops_016_samples_do_not_pile_up_when_nobody_scrapes() {
        /// Between two upkeeps, and how often. A sample takes 16 bytes or more until it is folded: so many that tests
        /// beside this one, which hold large answers, do not matter.
        const SAMPLES: usize = 50_000;
        const ROUNDS: usize = 400;
        let (metrics, recorder) = Metrics::new(Catalogue::new(&[])).unwrap();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let (stop, key) = (CancellationToken::new(), series());
        let histogram = HANDLING.histogram_of(&key);
        let upkeep = tokio::spawn(metrics.clone().upkeep(stop.clone()));
        let before = memory();
        for _ in 0..ROUNDS {
            for _ in 0..SAMPLES {
                histogram.record(0.001);
            }
            sleep(UPKEEP_INTERVAL).await;
        }
        let grown = memory().saturating_sub(before);
        let unfolded = SAMPLES * ROUNDS * 16;
        assert!(grown < unfolded / 3, "{grown} bytes of {unfolded}");
        stop.cancel();
        upkeep.await.unwrap();
        let count = format!("}} {}\n", SAMPLES * ROUNDS);
        assert!(metrics.render().contains(&count), "no sample is lost");
    }

    fn series() -> metrics::Key {
        Catalogue::new(&[]).series(&HANDLING).swap_remove(0)
    }
}
