//! Which traces are recorded (`telemetry.sample_ratio`, ARC-097).

/// Decides about traces that begin here. Those that a caller has begun are the caller's decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampler {
    ratio: f64,
}

impl Sampler {
    /// Records this share of all traces, from 0 to 1.
    pub(crate) const fn new(ratio: f64) -> Self {
        Self { ratio }
    }

    /// The id of a new trace.
    pub(crate) fn trace_id() -> u128 {
        fastrand::u128(1..)
    }

    /// Whether a trace is recorded: by its id, so that whoever asks again hears the same.
    pub(crate) fn takes(self, trace_id: u128) -> bool {
        let [.., a, b, c, d] = trace_id.to_be_bytes();
        let place = f64::from(u32::from_be_bytes([a, b, c, d]));
        place < self.ratio * (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arc_097_the_ratio_of_all_traces_is_recorded() {
        const TRACES: u32 = 100_000;
        for ratio in [0.0, 0.01, 0.5, 1.0] {
            let sampler = Sampler::new(ratio);
            let taken = (0..TRACES).filter(|_| sampler.takes(Sampler::trace_id()));
            let taken = f64::from(u32::try_from(taken.count()).unwrap());
            let expected = ratio * f64::from(TRACES);
            // Of a hundred thousand, the standard deviation is at most 158.
            assert!(
                (taken - expected).abs() <= 1500.0 * ratio * (1.0 - ratio) * 4.0,
                "{ratio}: {taken}"
            );
        }
    }

    #[test]
    fn arc_097_the_decision_is_the_trace_s() {
        let sampler = Sampler::new(0.5);
        assert!(sampler.takes(0x7fff_ffff));
        assert!(!sampler.takes(0x8000_0000));
        assert!(Sampler::new(1.0).takes(u128::MAX));
        assert!(!Sampler::new(0.0).takes(1 << 32));
    }
}
