//! A window of a policy: on days of each week, or at a fixed time.

use jiff::civil::{Time, Weekday};
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp, ToSpan};
use serde::Deserialize;

use super::Window;

const ONE_DAY: SignedDuration = SignedDuration::from_hours(24);
/// Days relative to today: from yesterday, whose window may continue after midnight, to the day after the same
/// weekday of next week.
const RELATIVE_DAYS: std::ops::RangeInclusive<i64> = -1..=8;

/// Format in the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SpanJson {
    days: Vec<String>,
    begin: String,
    end: String,
}

impl SpanJson {
    /// Reports whether no field is set.
    pub(super) fn is_empty(&self) -> bool {
        self.days.is_empty() && self.begin.is_empty() && self.end.is_empty()
    }
}

#[derive(Debug, Clone)]
pub(super) enum Span {
    Weekly { days: Vec<Weekday>, begin: TimeOfDay, end: TimeOfDay },
    Once(Window),
}

/// A time of day with its UTC offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeOfDay {
    time: Time,
    offset: Offset,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SpanError {
    #[error("{0:?} is not a day: write Mon, Tue, Wed, Thu, Fri, Sat or Sun")]
    Day(String),
    #[error("{0:?} is not a time of day with offset, such as 20:00:00Z or 20:00:00+02:00")]
    Time(String),
    #[error(
        "{0:?} is not a date and time with offset, such as 2026-10-31T20:00:00Z; for a time of day name the days"
    )]
    DateTime(String),
    #[error("it ends before it begins")]
    EndBeforeBegin,
}

impl TryFrom<SpanJson> for Span {
    type Error = SpanError;

    fn try_from(file: SpanJson) -> Result<Self, SpanError> {
        if file.days.is_empty() {
            let moment = |text: String| text.parse::<Timestamp>().map_err(|_| SpanError::DateTime(text));
            let window = Window { begin: moment(file.begin)?, end: moment(file.end)? };
            return if window.begin < window.end {
                Ok(Self::Once(window))
            } else {
                Err(SpanError::EndBeforeBegin)
            };
        }
        let days = file.days.into_iter().map(|day| weekday(&day).ok_or(SpanError::Day(day)));
        Ok(Self::Weekly {
            days: days.collect::<Result<_, _>>()?,
            begin: time_of_day(file.begin)?,
            end: time_of_day(file.end)?,
        })
    }
}

impl Span {
    /// Returns the open occurrence if more than `least` is left of it, or else the next one of that length.
    pub(super) fn window(&self, now: Timestamp, least: SignedDuration) -> Option<Window> {
        let is_left = |window: &Window| window.end.duration_since(window.begin.max(now)) > least;
        match self {
            Self::Once(window) => Some(*window).filter(is_left),
            Self::Weekly { days, begin, end } => {
                let mut occurrences =
                    RELATIVE_DAYS.filter_map(|day| occurrence(days, *begin, *end, now, day));
                occurrences.find(is_left)
            }
        }
    }
}

/// Returns the occurrence that begins `day` days after today, by the offset of `begin`.
fn occurrence(
    days: &[Weekday],
    begin: TimeOfDay,
    end: TimeOfDay,
    now: Timestamp,
    day: i64,
) -> Option<Window> {
    let date = begin.offset.to_datetime(now).date().checked_add(day.days()).ok()?;
    if !days.contains(&date.weekday()) {
        return None;
    }
    let at = |moment: TimeOfDay| moment.offset.to_timestamp(date.to_datetime(moment.time)).ok();
    let (begin, end) = (at(begin)?, at(end)?);
    let end = if end <= begin { end.checked_add(ONE_DAY).ok()? } else { end };
    Some(Window { begin, end })
}

fn weekday(text: &str) -> Option<Weekday> {
    Some(match text {
        "Mon" => Weekday::Monday,
        "Tue" => Weekday::Tuesday,
        "Wed" => Weekday::Wednesday,
        "Thu" => Weekday::Thursday,
        "Fri" => Weekday::Friday,
        "Sat" => Weekday::Saturday,
        "Sun" => Weekday::Sunday,
        _ => return None,
    })
}

/// Parses a time of day. Of a full date only the time is used, as in KLM.
fn time_of_day(text: String) -> Result<TimeOfDay, SpanError> {
    let numeric = text.replace('Z', "+00:00");
    let parsed = BrokenDownTime::parse("%H:%M:%S%:z", &numeric)
        .or_else(|_| BrokenDownTime::parse("%Y-%m-%dT%H:%M:%S%:z", &numeric));
    let moment =
        |parsed: BrokenDownTime| Some(TimeOfDay { time: parsed.to_time().ok()?, offset: parsed.offset()? });
    parsed.ok().and_then(moment).ok_or(SpanError::Time(text))
}
