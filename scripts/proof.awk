# Reads proof/ledger.jsonl. -v mode=next: the first free seed of -v layer= and -v part=; mode=show: the sums;
# mode=page: docs/proof/README.md. Refuses a ledger that is not sound: every mode is a check of it too.
#
# The lines are written by scripts/proof in one form, so they are taken apart by that form and by nothing looser.

function text(key,    found) {
  if (!match($0, "\"" key "\":\"[^\"]*\"")) wrong("has no text \"" key "\"")
  found = substr($0, RSTART, RLENGTH)
  return substr(found, length(key) + 5, length(found) - length(key) - 5)
}

function number(key,    found) {
  if (!match($0, "\"" key "\":(null|[0-9]+)[,}]")) wrong("has no number \"" key "\"")
  found = substr($0, RSTART, RLENGTH - 1)
  found = substr(found, length(key) + 4)
  return found == "null" ? "" : found + 0
}

function wrong(why) {
  printf "proof/ledger.jsonl:%d: %s\n", NR, why > "/dev/stderr"
  broken = 1
  exit 1
}

# 1234567 as 1,234,567; nothing as a dash.
function shown(value,    digits, out) {
  if (value == "") return "–"
  digits = sprintf("%.0f", value)
  while (length(digits) > 3) {
    out = "," substr(digits, length(digits) - 2) out
    digits = substr(digits, 1, length(digits) - 3)
  }
  return digits out
}

BEGIN { free = first }

{
  if ($0 !~ /^\{"date":"[0-9-]+","commit":"[0-9a-f]+","layer":"[a-z]+","part":"[a-z_ ]+","from":[^"]*,"to":[^"]*,"count":[^"]*,"events":[^"]*,"result":"(pass|fail: [^"]*)","command":"[^"]+"\}$/)
    wrong("is not a line of this ledger")
  l = text("layer"); p = text("part"); from = number("from"); to = number("to"); count = number("count")
  result = text("result")
  if (result == "pass" && count == "") wrong("passed without a count")
  if (from != "") {
    if (to < from) wrong("its seeds go backwards")
    if (l == "simulation" && count != "" && count != to - from + 1) wrong("counts other histories than its seeds")
    for (i = 1; i <= lines; i++)
      if (layers[i] == l && parts[i] == p && from <= tos[i] && froms[i] <= to) wrong("repeats seeds of line " i)
    if (l == layer && (part == "" || p == part) && to >= free) free = to + 1
  }
  lines = NR
  dates[NR] = text("date"); commits[NR] = text("commit"); layers[NR] = l; parts[NR] = p; froms[NR] = from; tos[NR] = to
  counts[NR] = count; events[NR] = number("events"); results[NR] = result; commands[NR] = text("command")
  key = l " / " p
  if (!(key in runs)) { order[++keys] = key; keyed[key] = l }
  runs[key]++
  # These go through the same things each time: their runs do not add up.
  if (l == "model" || l == "bugs" || l == "mutants") { sums[key] = 0; delete happened[key] }
  if (result == "pass") { passed[key]++; sums[key] += count; if (events[NR] != "") happened[key] += events[NR] }
  last[key] = NR
}

END {
  if (broken) exit 1
  if (mode == "next") { printf "%.0f\n", free; exit }
  if (mode == "show") {
    for (i = 1; i <= keys; i++)
      printf "%-28s %4d runs, %d failed  %16s %-12s %18s\n", order[i], runs[order[i]], runs[order[i]] - passed[order[i]], \
        shown(sums[order[i]]), unit(keyed[order[i]]), (order[i] in happened) ? shown(happened[order[i]]) " " event(keyed[order[i]]) : ""
    exit
  }
  write_page()
}

function unit(l) {
  return l == "simulation" || l == "replay" ? "histories" : l == "fuzz" ? "executions" : l == "model" ? "configurations" : \
    l == "soak" ? "faults" : l == "bugs" ? "bugs" : l == "mutants" ? "caught" : l == "reruns" ? "tests" : "drills"
}
function event(l) {
  return l == "simulation" || l == "replay" ? "events" : l == "model" ? "transitions" : l == "bugs" ? "times by a layer" : \
    l == "mutants" ? "mutants tried" : l == "reruns" ? "whole runs" : "fenced writes"
}

function write_page(    i, key, l, failures, total) {
  print "<!-- Written by scripts/proof from proof/ledger.jsonl: do not edit. -->"
  print "# Proof"
  print ""
  print "What was run to find out whether the promises hold, how often, what came out, and how to run it again. Every figure on this page is the"
  print "sum of lines in `proof/ledger.jsonl`: a line is one run, names its commit and its command, and is kept when the run fails too. Seeds are never"
  print "used twice, so runs add up; only the model walks through the same states each time, and its figures are the last run's. The layers are different"
  print "kinds of evidence and their numbers are not added to each other."
  print ""
  print "## Sums"
  print ""
  print "| layer | part | runs | failed | what passed | of which | last run on |"
  print "|---|---|---|---|---|---|---|"
  for (i = 1; i <= keys; i++) {
    key = order[i]; l = keyed[key]
    printf "| %s | %s | %d | %d | %s %s | %s | `%s`, %s |\n", l, code(l, parts[last[key]]), runs[key], runs[key] - passed[key], \
      shown(sums[key] + 0), unit(l), (key in happened) ? shown(happened[key]) " " event(l) : "–", \
      commits[last[key]], dates[last[key]]
    if (l == "fuzz") total += sums[key]
  }
  print ""
  if (total != "") printf "Fuzzing together: %s executions.\n\n", shown(total)
  print "A run of a layer that is not in this table is not on record. A sum over several commits says that each history passed on the code of its"
  print "day, not that all of them pass on today's; the last column says which code was run last."
  print ""
  print "## What was found"
  print ""
  for (i = 1; i <= lines; i++) if (results[i] != "pass") {
    if (!failures++) { print "| date | commit | layer | part | result | run again with |"; print "|---|---|---|---|---|---|" }
    printf "| %s | `%s` | %s | %s | %s | `%s` |\n", dates[i], commits[i], layers[i], code(layers[i], parts[i]), \
      substr(results[i], 7), commands[i]
  }
  if (!failures) print "No run on record has failed."
  print ""
  print "## The layers"
  print ""
  print "- **simulation, core**: the real acquire, hold and breaker machines and the reference store in a simulated world: drifting clocks, lost, late and"
  print "  repeated messages, pauses, crashes, a store that forgets. An oracle that knows nothing of the machines judges I1 to I9 and L5 in true time."
  print "  A seed is one history. That the oracle can see is shown apart: known mistakes are put back and each must be caught."
  print "  It simulates the protocol; it is not a test of a server or of a network. The code is `crates/core/tests/sim`."
  print "- **simulation, client**: the whole real client (acquires, keeper, gate, breaker, debt collector, steward), several processes on drifting"
  print "  clocks, against stores with Redis's and SQLite's habits, then a healing phase; judged by the same oracle as the drills. See [simulation](simulation.md)."
  print "- **simulation, daemon**: the same clients, clients whose holds the daemon keeps and clients that renew with nothing but HTTP, through the real daemon and"
  print "  the real HTTP store over a simulated network; daemon, clients, network and store fail. Judged by the same oracle. See [simulation](simulation.md)."
  print "- **replay**: histories of one of the simulations lived twice; they must be the same to the last byte."
  print "- **model**: every order of events of the [protocol's model](model.md), within bounds; configurations that must hold, and mistakes that must break it."
  print "- **drills**: every [drill](drills.md) once, on real servers and processes, with a verdict of its own. Counted are drills and fenced writes"
  print "  at their targets; a stale one that was applied would be a failure."
  print "- **faults**: short drills on real servers and processes, each with two workers, a store and one fault of its own (kill -9, SIGSTOP, lost and"
  print "  repeated messages, resets, black holes, restarts, flushes, frozen servers, wrong clocks, connection limits), judged by the same checker."
  print "  The seed chooses store, class, fault and delays; the machine does the rest, so a seed repeats the fault and not the instant."
  print "- **soak**: one fleet on one store for as long as the command says, with a fault every 5 s, judged window by window."
  print "- **bugs**: known mistakes put back into the real code, one at a time; counted are those that every layer named for them has caught. [Which](seeded-bugs.md)."
  print "- **mutants**: small changes to core's guards by a tool (cargo-mutants); a mutant is caught if a test fails or does not end."
  print "- **reruns**: every test again and again on the same code; a test that fails once is flaky, and the run is counted as failed."
  print "- **fuzz**: everything that reads foreign text or bytes gets mutated inputs. Each target checks a property beyond not crashing: what"
  print "  is printed reads back, bounds hold, secrets are not repeated, two parsers agree. One execution is one input, and most inputs are refused"
  print "  early: the count says how long was tried, not how much was proved. The targets are in `fuzz/targets`, their first inputs in `fuzz/seeds`."
  print ""
  print "The kinds of numbers stay apart: the protocol simulated, the client and the daemon simulated, and faults on real servers. What of it every change has to pass,"
  print "and what only a release: [figures](figures.md)."
  print ""
  print "## Running it again"
  print ""
  print "```sh"
  print "scripts/proof sim 300000   # new histories, from the first free seed"
  print "scripts/proof client 20000 # new histories of the real client"
  print "scripts/proof daemon 5000  # new histories of the real daemon and its clients"
  print "scripts/proof replay 1000  # new histories, each lived twice"
  print "scripts/proof fuzz 30      # every target for 30 seconds"
  print "scripts/proof model        # every configuration of the model"
  print "scripts/proof drills       # every drill on every store"
  print "scripts/proof faults 2000  # short drills with one real fault each, from the first free seed"
  print "scripts/proof soak 5m      # one fleet, a fault every 5 s"
  print "scripts/proof bugs         # every seeded bug"
  print "scripts/proof mutants      # mutants of core's guards"
  print "scripts/proof reruns 3     # every test three times"
  print "scripts/proof show         # the sums"
  print "scripts/proof check        # is the ledger sound, and is this page what it says?"
  print "```"
  print ""
  print "A line of the ledger is repeated with its `command` on its `commit`: for a simulation that gives the same histories and the same number of events."
  print "Drills and soaks repeat their faults, not the machine's timing; what breaks a promise keeps its history as a file, and `leasehold drill report` judges it again."
  print "A fuzz run depends on the time it gets and on the inputs collected before; what it finds is kept as a file, and that repeats."
  print ""
  print "## Every run"
  print ""
  print "| date | commit | layer | part | seeds | count | events | result |"
  print "|---|---|---|---|---|---|---|---|"
  for (i = 1; i <= lines; i++)
    printf "| %s | `%s` | %s | %s | %s | %s | %s | %s |\n", dates[i], commits[i], layers[i], code(layers[i], parts[i]), \
      froms[i] == "" ? "–" : froms[i] == tos[i] ? froms[i] : shown(froms[i]) "–" shown(tos[i]), \
      shown(counts[i]), shown(events[i]), results[i]
}

function code(l, p) { return l == "fuzz" ? "`" p "`" : p }
