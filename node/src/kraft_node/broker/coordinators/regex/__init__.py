"""Regular expressions over topic names and transactional ids, in RE2's syntax, matched in time linear in the name.

Kafka's brokers use RE2/J. Python's `re` has another syntax, and needs exponential time for a hostile pattern, so this
package has its own engine. The engine only tests whether a whole name matches, and knows 95 characters (`alphabet`). So
a character class is a bit set, groups capture nothing, and the automaton stays small.

The subset: everything of RE2 except scripts of `\\p{...}` that are not listed in `syntax`, and patterns beyond the
limits `MAX_PATTERN_CHARS`, `MAX_DEPTH` (both in `syntax`) and `MAX_INSTRUCTIONS` (in `program`). These are refused like
errors of syntax.
"""
