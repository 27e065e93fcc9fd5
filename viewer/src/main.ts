// The entry of the bundle for partitions.

import { App } from "./app";
import { enter } from "./entry";

export default enter(App.start);
