"""A module from which no rank can be forked."""

import threading
import time

threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
