package router_test

import _ "lorasim/router/epp" // the tests over all policies run it, too
