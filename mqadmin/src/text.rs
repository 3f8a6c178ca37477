//! Text for people: aligned tables, times, sizes.

use unicode_width::UnicodeWidthStr;

use crate::report::{Colour, Row};

/// Appends a table: headings, then rows, each column as wide as its widest cell.
pub(crate) fn table(out: &mut String, headings: &[&str], rows: &[Row], coloured: bool) {
    let widths: Vec<usize> = headings
        .iter()
        .enumerate()
        .map(|(at, heading)| {
            let cells = rows.iter().filter_map(|row| row.cells.get(at));
            cells
                .map(|cell| cell.width())
                .max()
                .unwrap_or(0)
                .max(heading.width())
        })
        .collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>, colour: Option<Colour>| {
        let mut text = String::new();
        for (cell, wide) in cells.zip(&widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', wide - cell.width().min(*wide) + 2));
        }
        let text = text.trim_end();
        match colour.filter(|_| coloured) {
            Some(colour) => out.push_str(&colour.paint(text)),
            None => out.push_str(text),
        }
        out.push('\n');
    };
    line(&mut headings.iter().copied(), Some(Colour::Bold));
    for row in rows {
        line(&mut row.cells.iter().map(String::as_str), row.colour);
    }
}

/// `yyyy-MM-dd HH:mm:ss,SSS` in the machine's time zone; empty for no time.
pub(crate) fn time(ms: i64) -> String {
    if ms <= 0 {
        return String::new();
    }
    format!("{},{:03}", seconds(ms), ms.rem_euclid(1000))
}

/// `yyyy-MM-dd HH:mm:ss` in the machine's time zone; `N/A` for no time.
pub(crate) fn time_or_na(ms: i64) -> String {
    if ms <= 0 {
        return "N/A".to_owned();
    }
    seconds(ms)
}

fn seconds(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    let zoned = time.to_zoned(jiff::tz::TimeZone::system());
    zoned.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// ms since 1970.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS.get(unit).copied().unwrap_or("TiB"))
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
        let rows = [
            Row::from(vec!["订单".to_owned(), "0".to_owned()]),
            Row::from(vec!["orders-long".to_owned(), "1".to_owned()]),
        ];
        table(&mut out, &["#Topic", "#QID"], &rows, false);
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
        assert_eq!((time(0), time_or_na(0)), (String::new(), "N/A".to_owned()));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(5 << 40), "5.0 TiB");
    }
}
