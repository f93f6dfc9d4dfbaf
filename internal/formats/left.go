package formats

import "tiney/internal/link"

// Left says what a file has of a link that does not come along.
type Left uint8

const (
	leftPassword Left = 1 << iota
	leftRules
	leftSchedule
	leftGone // where the link leads after its end
	leftClicks
	leftCreated
	leftLimit // of openings
	leftOwner
)

// LeftWords are the words for what is left behind, in the order of the bits of Left.
var LeftWords = []string{"password", "rules", "schedule", "gone", "clicks", "created", "limit",
	"owner"}

// Words returns the words, which is an empty list if nothing is left behind.
func (l Left) Words() []string {
	words := []string{}
	for i, word := range LeftWords {
		if l>>i&1 == 1 {
			words = append(words, word)
		}
	}
	return words
}

// ofRules returns what is left behind with some of these rules. In the formats of others, only
// those rules have times that were schedules.
func ofRules(rules []link.TargetRule) Left {
	if rules[0].Until != nil {
		return leftSchedule
	}
	return leftRules
}
