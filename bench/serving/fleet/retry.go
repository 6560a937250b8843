package fleet

// MaxLost is how many workers may fail one request after it was sent to them: by
// closing or resetting the connection, by not answering in time, or with a status of
// 500 or more other than 503. A request that brings workers down is not offered to a
// third one, whatever number of retries is allowed.
const MaxLost = 2
