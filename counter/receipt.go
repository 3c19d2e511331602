package counter

import "sync/atomic"

// receipts is a block of receipts: two bits for each of some admitted Verdicts, the
// first set by a Refund, both by a Settle. All copies of a Verdict share their bits.
// Receipts of a block cost no allocations of their own.
type receipts struct {
	owner    *Counter
	first    uint64 // the place of receipt 0
	redeemed [receiptsPerBlock / 32]atomic.Uint64
}

const receiptsPerBlock = 8 * 64

// Marks of a receipt.
const refunded, settled uint64 = 1, 3

// redeem marks receipt i, and reports whether it had no mark. It is an error if a Settle
// has marked it, even in vain.
func (r *receipts) redeem(i uint16, mark uint64) (first bool, err error) {
	shift := i % 32 * 2
	old := r.redeemed[i/32].Or(mark<<shift) >> shift & settled
	if old == settled {
		err = ErrSettled
	}
	return old == 0, err
}

// numbered gives out the receipts of admissions that the store has numbered.
// Admissions whose numbers are alike in the last bits share blocks: a store that
// numbers in each of its parts by itself then fills blocks one after the other.
type numbered [numberedBlocks]atomic.Pointer[receipts]

// numberedBlocks is the largest number of parts of the memory store: parts that share
// a place would replace each other's blocks.
const numberedBlocks = 256

// of returns the receipt of an admission.
func (n *numbered) of(c *Counter, number uint64) (block *receipts, bit uint16) {
	return receiptOf(&n[number%numberedBlocks], c, number/numberedBlocks)
}

// receiptOf returns the receipt at a place, which no other admission of current has.
// The bit is its own, since the place is: a block may come to be there twice, or be
// replaced by an earlier block, and two blocks for the same places are two blocks half
// used.
func receiptOf(current *atomic.Pointer[receipts], c *Counter, place uint64) (block *receipts, bit uint16) {
	block = current.Load()
	if block == nil || place-block.first >= receiptsPerBlock {
		block = &receipts{owner: c, first: place - place%receiptsPerBlock}
		current.Store(block)
	}
	return block, uint16(place - block.first)
}
