SELECT id FROM fleet
