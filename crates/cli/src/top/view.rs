//! Draws the screen: heading, locks with bars, events, and keys.

use std::time::Duration;

use leasehold::clock::Moment;
use leasehold::store::Lease;
use leasehold_core::types::is_invisible;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};

use super::model::{Column, Model};
use crate::lease::short_duration;

const BAR_WIDTH: usize = 16;

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, now: Moment, colour: bool) {
    // The locks matter most: events get at most a third of the screen.
    let events = (frame.area().height / 3).clamp(3, 12);
    let [head, locks, news, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(events),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(model, now, colour), head);
    draw_locks(frame, locks, model, now, colour);
    draw_events(frame, news, model, colour);
    frame.render_widget(key_help(model), foot);
    replace_invisible(frame.buffer_mut());
}

/// ratatui drops control characters. Invisible ones would remain, and some reverse the direction of the line.
fn replace_invisible(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.symbol().contains(is_invisible) {
            cell.set_symbol("\u{fffd}");
        }
    }
}

fn colour_style(colour: bool, with: Color) -> Style {
    if colour { Style::new().fg(with) } else { Style::new() }
}

fn heading<'a>(model: &'a Model, now: Moment, colour: bool) -> Line<'a> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let (held, waiting) = model.totals();
    let mut parts = vec![
        Span::styled("leasehold ", bold),
        Span::raw(model.store.as_str()),
        Span::raw(format!("  {held} held, {waiting} waiting")),
    ];
    if model.truncated {
        parts.push(Span::raw(" (there are more)"));
    }
    if model.paused {
        parts.push(Span::styled("  PAUSED", bold));
    }
    if let Some(error) = &model.error {
        let since =
            model.updated_at.map_or_else(String::new, |at| format!(" for {}", short_duration(now.since(at))));
        // The heading is one line high.
        let error = error.lines().next().unwrap_or_default();
        parts.push(Span::styled(
            format!("  NO ANSWER{since}: {error}"),
            colour_style(colour, Color::Red).patch(bold),
        ));
    }
    Line::from(parts)
}

/// The columns that fit the terminal. Names and holders come first; a small terminal drops the fence.
#[derive(Debug, Clone, Copy)]
struct ColumnLayout {
    fence: bool,
    class: u16,
    bar: usize,
    age: u16,
}

impl ColumnLayout {
    fn for_width(width: u16) -> Self {
        let (fence, class, bar, age) = match width {
            120.. => (true, 17, BAR_WIDTH, 9),
            100.. => (false, 17, BAR_WIDTH, 9),
            // Sized for the usual 80 columns.
            _ => (false, 10, BAR_WIDTH / 2 - 2, 7),
        };
        Self { fence, class, bar, age }
    }

    fn widths(self) -> Vec<Constraint> {
        let bar = u16::try_from(self.bar + 11).unwrap_or(27);
        let mut widths = vec![Constraint::Fill(3), Constraint::Fill(2), Constraint::Length(self.class)];
        widths.extend(self.fence.then_some(Constraint::Length(16)));
        widths.extend([bar, self.age, 8].map(Constraint::Length));
        widths
    }
}

fn draw_locks(frame: &mut Frame<'_>, area: Rect, model: &Model, now: Moment, colour: bool) {
    let room = ColumnLayout::for_width(area.width);
    let heads = [
        Some((Some(Column::Name), "NAME")),
        Some((Some(Column::Holder), "HOLDER")),
        Some((None, "CLASS")),
        room.fence.then_some((None, "FENCE")),
        Some((Some(Column::Remaining), "REMAINING")),
        Some((Some(Column::Age), "AGE")),
        Some((Some(Column::Waiters), "WAITERS")),
    ];
    let arrow = if model.reversed { "▲" } else { "▼" };
    let head = heads.into_iter().flatten().map(|(column, text)| {
        let sorted = column == Some(model.sort);
        Cell::from(if sorted { format!("{text}{arrow}") } else { text.to_owned() })
    });
    let rows = model.rows(now);
    let rows = rows
        .into_iter()
        .skip(model.first_row)
        .map(|(lease, left, share)| lock_row(lease, left, share, room, colour));
    let table = Table::new(rows, room.widths())
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(1);
    frame.render_widget(table, area);
}

fn lock_row<'a>(
    lease: &'a Lease,
    left: Option<Duration>,
    share: f64,
    room: ColumnLayout,
    colour: bool,
) -> Row<'a> {
    // Locks of other programs have no class, fence or age.
    let missing = || "-".to_owned();
    let time = left.map_or_else(|| "never ends".to_owned(), short_duration);
    // A lease is renewed after about a third of its TTL. Less than half left means a late renewal.
    let hue = if share > 0.5 {
        Color::Green
    } else if share > 0.25 {
        Color::Yellow
    } else {
        Color::Red
    };
    let fence = || Cell::from(lease.fence.map_or_else(missing, |fence| fence.to_string()));
    let cells = [
        Some(Cell::from(lease.name.as_str())),
        Some(Cell::from(lease.holder.as_str())),
        Some(Cell::from(lease.class.clone().unwrap_or_else(missing))),
        room.fence.then(fence),
        Some(Cell::from(Line::from(vec![
            Span::styled(bar(share, room.bar), colour_style(colour, hue)),
            Span::raw(format!(" {time}")),
        ]))),
        Some(Cell::from(lease.age.map_or_else(missing, short_duration))),
        Some(Cell::from(lease.waiters.map_or_else(missing, |waiters| waiters.to_string()))),
    ];
    Row::new(cells.into_iter().flatten())
}

/// A bar of fixed width for the remaining share.
fn bar(share: f64, width: usize) -> String {
    // `share` is between 0 and 1, so the cast cannot overflow.
    let full = (share * width as f64).round() as usize;
    format!("{}{}", "█".repeat(full.min(width)), "░".repeat(width.saturating_sub(full)))
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, model: &Model, colour: bool) {
    let lines: Vec<Line<'_>> = model
        .events
        .iter()
        .take(usize::from(area.height))
        .map(|news| {
            let hue = match news.kind.as_str() {
                "acquired" | "healed" | "resumed" => Color::Green,
                "freed" | "released" => Color::Yellow,
                "passed" | "policy_changed" => Color::Magenta,
                "renewed" | "waiters" | "busy" => Color::DarkGray,
                // Failures, and events that a newer daemon may send.
                _ => Color::Red,
            };
            Line::from(vec![
                Span::raw(format!("{} ", news.time)),
                Span::styled(format!("{:8}", news.kind), colour_style(colour, hue)),
                Span::raw(format!(" {}", news.text)),
            ])
        })
        .collect();
    let block = Block::new().borders(Borders::TOP).title(" what happened ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn key_help(model: &Model) -> Line<'_> {
    if model.typing {
        return Line::from(format!("/{}▏ Enter keeps it, Esc clears it", model.filter));
    }
    let filter =
        if model.filter.is_empty() { String::new() } else { format!("  showing only {:?}", model.filter) };
    Line::from(format!("q quit  / filter  s sort by {}  r reverse  p pause{filter}", model.sort.as_str()))
}

#[cfg(test)]
mod tests {
    use leasehold::{Fence, Name};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::super::model::KeyOutcome;
    use super::super::poll::PollResult;
    use super::*;
    use crate::events::DaemonEvent;

    fn lease(name: &str, fence: u64, left: u64, waiters: u64) -> Lease {
        Lease::new(Name::new(name).unwrap(), format!("host:{fence}"))
            .with_class("scheduler".to_owned())
            .with_fence(Fence::new(fence))
            .with_remaining(Duration::from_secs(left))
            .with_age(Duration::from_secs(90))
            .with_waiters(waiters)
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn apply_listing(model: &mut Model, seconds: u64, leases: &[Lease]) {
        let seen = Ok((leases.to_vec(), false));
        let at = at(seconds);
        model.apply_poll(PollResult { sent: at, answered: at, listing: seen });
    }

    fn screen(model: &Model, seconds: u64) -> String {
        screen_with_width(model, seconds, 130)
    }

    fn screen_with_width(model: &Model, seconds: u64, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 12)).unwrap();
        terminal.draw(|frame| draw(frame, model, at(seconds), true)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let lines = buffer.content().chunks(usize::from(width)).map(|line| {
            let line: String = line.iter().map(|cell| cell.symbol()).collect();
            format!("{}\n", line.trim_end())
        });
        lines.collect()
    }

    fn press_keys(model: &mut Model, keys: &str) {
        for key in keys.chars() {
            let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
            assert_eq!(model.handle_key(KeyEvent::new(code, KeyModifiers::NONE)), KeyOutcome::Continue);
        }
    }

    #[test]
    fn the_screen_shows_locks_bars_and_events() {
        let mut model = Model::new("memory:".into(), false);
        apply_listing(&mut model, 1, &[lease("job:a", 7, 60, 0), lease("job:b", 8, 60, 2)]);
        apply_listing(&mut model, 31, &[lease("job:a", 7, 30, 0), lease("job:b", 8, 60, 2)]);
        apply_listing(&mut model, 32, &[lease("job:a", 7, 29, 0), lease("job:c", 9, 10, 0)]);
        let shown = screen(&model, 32);
        assert!(shown.starts_with("leasehold memory:  2 held, 0 waiting"), "{shown}");
        assert!(shown.contains("job:a"), "{shown}");
        assert!(shown.contains("████████░░░░░░░░ 29s"), "{shown}");
        assert!(shown.contains("renewed  job:b host:8 fence 8"), "{shown}");
        assert!(shown.contains("freed    job:b host:8"), "{shown}");
        assert!(shown.contains("acquired job:c host:9"), "{shown}");
        // The display counts down between two polls.
        assert!(screen(&model, 40).contains(" 21s"), "{}", screen(&model, 40));
    }

    // Names and holders fit every width; fences only appear on wide terminals.
    #[test]
    fn a_small_terminal_shows_names_and_holders() {
        let mut model = Model::new("memory:".into(), false);
        let long = format!("job:{}", "x".repeat(60));
        apply_listing(
            &mut model,
            1,
            &[lease("job:nightly-42", 1_794_797_960_586_330, 60, 3), lease(&long, 8, 30, 0)],
        );
        for width in [80, 99, 100, 119, 120, 200] {
            let shown = screen_with_width(&model, 1, width);
            let line = shown.lines().find(|line| line.contains("job:nightly")).expect(&shown);
            let words: Vec<_> = line.split_whitespace().collect();
            assert_eq!(words[0], "job:nightly-42", "{width}: {shown}");
            assert!(words[1].starts_with("host:179"), "{width}: {shown}");
            assert_eq!(words[2], "scheduler", "{width}: {shown}");
            assert!(
                line.contains('█') && line.contains(" 1m") && line.trim_end().ends_with('3'),
                "{width}: {shown}"
            );
            assert_eq!(line.contains(" 1794797960586330 "), width >= 120, "{width}: {shown}");
            for head in ["NAME", "HOLDER", "CLASS", "REMAINING", "AGE", "WAITERS"] {
                assert!(shown.lines().nth(1).unwrap().contains(head), "{width}: {shown}");
            }
        }
    }

    #[test]
    fn keys_filter_sort_pause_and_quit() {
        let mut model = Model::new("memory:".into(), false);
        apply_listing(
            &mut model,
            1,
            &[lease("job:a", 7, 60, 0), lease("job:b", 8, 20, 2), lease("x", 9, 40, 1)],
        );
        let names = |model: &Model| -> Vec<String> {
            model.rows(at(1)).iter().map(|row| row.0.name.to_string()).collect()
        };
        press_keys(&mut model, "/job\n");
        assert_eq!(names(&model), ["job:a", "job:b"]);
        assert!(screen(&model, 1).contains("showing only \"job\""));
        assert_eq!(model.handle_key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)), KeyOutcome::Continue);
        press_keys(&mut model, "ss");
        assert_eq!(names(&model), ["job:b", "x", "job:a"], "by time left");
        press_keys(&mut model, "r");
        assert_eq!(names(&model), ["job:a", "x", "job:b"]);
        press_keys(&mut model, "p");
        apply_listing(&mut model, 2, &[]);
        assert_eq!(names(&model).len(), 3, "paused");
        assert_eq!(model.handle_key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)), KeyOutcome::Quit);
        // While the filter is typed, `q` is a letter.
        press_keys(&mut model, "/q");
        assert!(model.typing);
    }

    #[test]
    fn daemon_events_are_shown_unchanged() {
        let mut model = Model::new("http://h".into(), true);
        apply_listing(&mut model, 1, &[]);
        apply_listing(&mut model, 2, &[lease("job:a", 7, 60, 0)]);
        model.add_daemon_event(&DaemonEvent {
            at: "2026-01-02T03:04:05.678Z".into(),
            event: "broken".into(),
            name: Some("job:a".into()),
            holder: "web-1".into(),
            fence: Some("7".into()),
            detail: serde_json::json!({ "by": "ops: stuck" }),
            ..DaemonEvent::default()
        });
        let shown = screen(&model, 2);
        assert!(shown.contains("03:04:05 broken   job:a web-1 fence 7 by=ops: stuck"), "{shown}");
        assert!(!shown.contains("acquired"), "nothing is guessed beside it: {shown}");
    }

    #[test]
    fn a_failed_poll_is_shown_and_the_last_listing_stays() {
        let mut model = Model::new("redis://h".into(), false);
        apply_listing(&mut model, 1, &[lease("job:a", 7, 60, 0)]);
        let seen = Err("the store did not answer".to_owned());
        model.apply_poll(PollResult { sent: at(8), answered: at(9), listing: seen });
        let shown = screen(&model, 11);
        assert!(shown.contains("NO ANSWER for 10s: the store did not answer"), "{shown}");
        assert!(shown.contains("job:a"), "{shown}");
    }
}
