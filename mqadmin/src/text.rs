//! Text for people: aligned tables, times, sizes.

/// Columns a character takes: two for the wide ones of East Asian scripts and emoji.
fn width(text: &str) -> usize {
    text.chars()
        .map(|c| match c as u32 {
            0 => 0,
            0x1100..=0x115F
            | 0x2E80..=0xA4CF
            | 0xAC00..=0xD7A3
            | 0xF900..=0xFAFF
            | 0xFE30..=0xFE6F => 2,
            0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1FAFF | 0x20000..=0x3FFFD => 2,
            _ => 1,
        })
        .sum()
}

/// Appends a table: headings, then rows, each column as wide as its widest cell.
pub(crate) fn table(out: &mut String, headings: &[&str], rows: &[Vec<String>]) {
    let widths: Vec<usize> = headings
        .iter()
        .enumerate()
        .map(|(at, heading)| {
            let cells = rows
                .iter()
                .filter_map(|row| row.get(at))
                .map(|cell| width(cell));
            cells.max().unwrap_or(0).max(width(heading))
        })
        .collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, wide) in cells.zip(&widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', wide - width(cell).min(*wide) + 2));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&mut headings.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
}

/// `yyyy-MM-dd HH:mm:ss,SSS` in the machine's time zone; empty for no time.
pub(crate) fn time(ms: i64) -> String {
    if ms <= 0 {
        return String::new();
    }
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    let zoned = time.to_zoned(jiff::tz::TimeZone::system());
    format!(
        "{},{:03}",
        zoned.strftime("%Y-%m-%d %H:%M:%S"),
        ms.rem_euclid(1000)
    )
}

/// Milliseconds of a time given as an option: `now` (−1), digits, or `yyyy-MM-dd#HH:mm:ss:SSS` in the machine's
/// time zone (mqadmin spec 3).
pub(crate) fn parse_time(text: &str) -> Result<i64, String> {
    if text == "now" {
        return Ok(-1);
    }
    if let Ok(ms) = text.parse() {
        return Ok(ms);
    }
    let wrong =
        || format!("\"{text}\" is no time: give milliseconds, now, or yyyy-MM-dd#HH:mm:ss:SSS");
    let (seconds, ms) = text.rsplit_once(':').ok_or_else(wrong)?;
    let ms: i64 = ms.parse().map_err(|_| wrong())?;
    let time =
        jiff::civil::DateTime::strptime("%Y-%m-%d#%H:%M:%S", seconds).map_err(|_| wrong())?;
    let zoned = time
        .to_zoned(jiff::tz::TimeZone::system())
        .map_err(|_| wrong())?;
    Ok(zoned.timestamp().as_millisecond() + ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut out = String::new();
        table(
            &mut out,
            &["#Topic", "#QID"],
            &[
                vec!["订单".into(), "0".into()],
                vec!["orders-long".into(), "1".into()],
            ],
        );
        assert_eq!(out, "#Topic       #QID\n订单         0\norders-long  1\n");
    }

    #[test]
    fn times_are_read_in_all_three_forms() {
        assert_eq!(parse_time("now"), Ok(-1));
        assert_eq!(parse_time("1700000000000"), Ok(1_700_000_000_000));
        let ms = parse_time("2026-01-05#09:30:00:017").unwrap();
        assert!(
            time(ms).starts_with("2026-01-05 09:30:00,017"),
            "{}",
            time(ms)
        );
        assert!(parse_time("yesterday").unwrap_err().contains("yesterday"));
    }
}
