//! Order statistics of a sample.

/// Returns the smallest value that `share` (0 to 1) of the sample does not exceed; 0 for an empty sample.
pub(super) fn quantile(sample: &[f64], share: f64) -> f64 {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index"
    )]
    let rank = ((sorted.len() as f64) * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn a_quantile_is_a_value_of_the_sample() {
        let sample: Vec<f64> = (1..=100).map(f64::from).collect();
        assert!((quantile(&sample, 0.99) - 99.0).abs() < f64::EPSILON);
        assert!((quantile(&sample, 1.0) - 100.0).abs() < f64::EPSILON);
        assert!(quantile(&[], 0.5).abs() < f64::EPSILON);
    }
}
